"""Generates docs/configuration.md: every setting, and whether this version acts on it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import getclosurevars, getdoc

from penstock.metadata.settings import (
    broker_cluster,
    broker_groups,
    broker_logs,
    broker_network,
    broker_share_groups,
    broker_transactions,
)
from penstock.metadata.settings.effects import GAPS
from penstock.metadata.settings.group import GROUP_SETTINGS
from penstock.metadata.settings.setting import INT_MAX, LONG_MAX, Kind, Setting, Update
from penstock.metadata.settings.topic import TOPIC_SETTINGS

FAMILIES = (broker_network, broker_logs, broker_cluster, broker_groups, broker_transactions, broker_share_groups)
TITLES = ("Doors", "Logs", "Cluster", "Groups", "Offsets, transactions, producers", "Share groups")
OWN = {
    "durability": "topic",
    "record.validation": "topic",
    "log.durability": "broker",
    "log.record.validation": "broker",
    "metrics.listener": "broker",
    "metrics.partitions.max": "broker",
    "broker.decommission": "broker",
    "auto.balance.enable": "broker",
    "reassignment.replicas.per.broker.max": "broker",
    "reassignment.leader.interval.ms": "broker",
    "reassignment.bytes.per.second.max": "broker",
}

HEAD = """# Settings

<!-- Made by `./dev pages` from the code; a test compares. -->

Names, types, defaults and bounds are those of Apache Kafka 4.3, so that a `server.properties` and tools that know Kafka
work as they are. **Every setting is known and checked; not every one has an effect in this version.** The column
*Effect* has *yes*, or *no* or *in part* and what is true instead; a test compares it with the names that the code
reads.

## Settings without effect

No setting without effect is accepted in silence ([why](decisions/0027-settings-without-effect.md)). A value that
describes what this version does anyway, such as `compression.type=producer`, counts as having its effect.

**Refused**: `penstock server` does not start, and a sentence per setting says what to do. An empty value and Kafka's
default are accepted.

| Setting of a node | Refused with |
|---|---|
| `authorizer.class.name`, `super.users` | any value |
| `sasl.…`, `ssl.…`, also behind `listener.name.….` | any value |
| `security.inter.broker.protocol` | anything but `PLAINTEXT` |
| `listeners`, `controller.listener.names` | a listener that is not `PLAINTEXT`, by `listener.security.protocol.map` |
| `remote.log.storage.system.enable` | `true` |
| `log.cleanup.policy` | `compact`, alone or with `delete` |

**Accepted**: a node starts with any other setting without effect, and with those that this version does not know. It
logs one WARNING that lists them. Topics, groups and running brokers accept from any client what Kafka accepts; the
active controller logs a WARNING when such a setting is set (event `settings-without-effect` in
[the log](operating/logs.md)). `penstock topic create`, `penstock topic alter` and `penstock broker config` print a
sentence for each; `penstock topic describe` and `penstock broker config` mark them.

`penstock config check FILE` and `penstock doctor -c FILE` validate as `penstock server` does. `config check` reports
errors (typos, values out of bounds, contradictions), refusals, and settings without effect. Its exit code is 1 if there
are errors or refusals, because the server would not start, and 0 otherwise.

`penstock topic describe -a TOPIC` shows what is in force for a topic, and where it comes from.

## Where settings come from

The strongest first: what `penstock topic alter` or any admin client has set on a topic or on this broker; what was set
on all brokers; `PENSTOCK_…` variables; `KAFKA_CFG_…`; `KAFKA_…`; the file; the default.

| Form | Example |
|---|---|
| `server.properties` | `log.retention.ms=86400000` |
| TOML (the name ends in `.toml`) | `log.retention.ms = 86400000`, or `[log.retention]` and below it `ms = 86400000` |
| TOML list | `listeners = ["PLAINTEXT://localhost:9092"]` |
| environment | `PENSTOCK_LOG_RETENTION_MS=86400000`, also with `KAFKA_` or `KAFKA_CFG_` in front |
| environment, other characters | `_` becomes `.`, `__` becomes `_`, `___` becomes `-` |
| a topic | `penstock topic create orders -c retention.ms=86400000`, `penstock topic alter orders -c …` |

## Penstock's own

| Setting | Where | What it does |
|---|---|---|
"""
FILE_ONLY = {
    "cluster.id": "The name of the cluster; a data directory belongs to one. `penstock` if not given.",
    "allow.plaintext.beyond.loopback": "`true` lets other machines reach a plaintext listener. Without it, a node does "
    "not start at such an address.",
}
VARIABLES = """
Variables that are no settings: `PENSTOCK_CONTEXT` and `PENSTOCK_BOOTSTRAP` name the cluster of commands
([which cluster](commands.md#which-cluster)), `PENSTOCK_DEBUG=1` shows where a mistake of ours happened.

A broker also reports three values that cannot be set, to clients that request them by name with DescribeConfigs, as
Penstock's commands do: `penstock.clock.ms`, its clock; `penstock.complaints`, what it has refused in the last quarter
of an hour; `penstock.settings.gaps`, the settings that have no effect.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, *_own(), VARIABLES]
    parts += [
        "\n## Topics\n\nA topic that does not set one takes the broker's setting named beside it, then the default.\n\n"
    ]
    parts += _table(TOPIC_SETTINGS.values(), "Broker's setting", _stand_in)
    parts += ["\n## Brokers\n\n*Change*: whether a running broker takes a new value, alone or all of them together.\n"]
    for title, family in zip(TITLES, FAMILIES, strict=True):
        parts += [f"\n### {title}\n\n", *_table(family.SETTINGS, "Change", _change)]
    parts += ["\n## Groups\n\nSet by `kafka-configs.sh --entity-type groups` or any admin client.\n\n"]
    parts += _table(GROUP_SETTINGS.values(), "Broker's setting", _stand_in)
    return "".join(parts)


def _own() -> Iterator[str]:
    known: Mapping[str, Setting] = {**TOPIC_SETTINGS, **{s.name: s for f in FAMILIES for s in f.SETTINGS}}
    for name, where in OWN.items():
        yield f"| `{name}` | {where} | {_cell(known[name].documentation)} |\n"
    for name, sentence in FILE_ONLY.items():
        yield f"| `{name}` | file | {sentence} |\n"


def _table(settings: Iterable[Setting], extra: str, of: Callable[[Setting], str]) -> Iterator[str]:
    yield f"| Setting | Type | Default | Valid | {extra} | Effect | What it is |\n|---|---|---|---|---|---|---|\n"
    for setting in sorted(settings, key=lambda each: each.name):
        default = "–" if setting.default is None else f"`{_number(setting.default)}`" if setting.default else "empty"
        kind = setting.kind.name.lower()
        cells = (f"`{setting.name}`", kind, default, valid(setting), of(setting), _effect(setting))
        yield f"| {' | '.join(cells)} | {_cell(setting.documentation)} |\n"


def _effect(setting: Setting) -> str:
    gap = GAPS.get(setting.name)
    return "yes" if gap is None else str(gap)


def _stand_in(setting: Setting) -> str:
    return ", ".join(f"`{synonym.name}`" for synonym in setting.synonyms) or "–"


def _change(setting: Setting) -> str:
    return {Update.READ_ONLY: "restart", Update.PER_BROKER: "per broker", Update.CLUSTER_WIDE: "any time"}[
        setting.update
    ]


def valid(setting: Setting) -> str:
    """Describes the values that the setting's check accepts."""
    if setting.check is None:
        return "true, false" if setting.kind is Kind.BOOLEAN else "–"
    kept = getclosurevars(setting.check).nonlocals
    match setting.check.__qualname__.partition(".")[0]:
        case "at_least":
            return f"≥ {kept['least']}"
        case "between":
            return f"{getclosurevars(kept['check_least']).nonlocals['least']} to {kept['most']}"
        case "one_of" | "one_of_any_case":
            return ", ".join(f"`{word}`" for word in kept["allowed"])
    described = getdoc(setting.check)
    assert described, f"nobody says what {setting.name} may be"
    return _cell(described.rstrip("."))


def _number(text: str) -> str:
    return {str(INT_MAX): "2147483647 (2³¹-1)", str(LONG_MAX): "9223372036854775807 (2⁶³-1)"}.get(text, text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
