"""Generates docs/operating/logs.md: every event that a node logs under a stable name."""

from collections.abc import Iterator

from penstock.metadata import reports as metadata_reports
from penstock.model.report import Kind
from penstock.raft import reports as raft_reports
from penstock.replication import reports as replication_reports
from penstock.server.groups import group_reports

ROOMS: tuple[tuple[str, str, tuple[Kind, ...]], ...] = (
    ("The metadata quorum", "penstock.quorum", raft_reports.KINDS),
    ("The controller", "penstock.controller", metadata_reports.KINDS),
    ("Replicas", "penstock.replication", replication_reports.KINDS),
    ("Groups", "penstock.groups", group_reports.KINDS),
)

SAMPLE = (
    "2026-01-01T12:00:00.000Z INFO quorum: Follows node 2, which leads the metadata quorum in epoch 7; "
    "before: node 1, in epoch 6. [quorum-follows]"
)
ALTER = (
    "kafka-configs --bootstrap-server localhost:9092 --alter --entity-type broker-loggers --entity-name 1 "
    "--add-config penstock.requests=DEBUG"
)

HEAD = f"""# Logs

<!-- Made by `./dev pages` from the code; a test compares. -->

A node writes its log to standard error, a line per entry: the time in UTC, the level, the logger, a sentence, and in
brackets the name of the event, if it has one. Names and fields are stable; sentences may change. `penstock sandbox`
keeps the log of each node in `.penstock/cluster/node-N/log`.

```text
{SAMPLE}
```

| How | What is logged |
|---|---|
| `penstock server` | what changes: elections, registrations, leaders, replicas in sync, rebalances, settings |
| `penstock server --verbose` | details of requests, too |
| `penstock dev` | warnings; with `--verbose` what `penstock server` logs |
| `--log-format json` | an object per line: `time`, `level`, `logger`, `event`, `message`, `fields` |

The level of a logger is changed while the node runs; here node 1 logs every request, and then as before:

```sh
penstock broker log-level 1 -c penstock.requests=DEBUG
penstock broker log-level 1 -d penstock.requests
```

Kafka's own tool does the same: `{ALTER}`.

On [the cluster of these pages](../operating.md), the last lines of a node:

```sh
tail -n 3 .penstock/cluster/node-1/log
penstock cluster health --wait 60
```

Where something happens to many partitions, topics or groups at once, one line names the first and counts the rest.
A steady load logs nothing ([an hour of it](../results/steady-log.md)); a leader that is killed logs
[fifteen lines on three nodes](../results/killed-leader.md).
"""


def page() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEAD
    for title, logger, kinds in ROOMS:
        yield f"## {title}\n\nLogger `{logger}`.\n\n| Event | Level | Sentence | What it means |\n|---|---|---|---|"
        for kind in kinds:
            sentence = kind.sentence.replace("{", "*").replace("}", "*").replace("|", "\\|")
            yield f"| `{kind.name}` | {kind.level.name} | {sentence} | {kind.meaning} |"
        yield ""
