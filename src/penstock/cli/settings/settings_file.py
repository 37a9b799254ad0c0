"""A broker's settings as texts by name: from server.properties, from TOML, and from the environment.

Kafka images turn KAFKA_FOO_BAR (or KAFKA_CFG_FOO_BAR) into foo.bar, `__` into `_` and `___` into `-`; so does Penstock,
which accepts PENSTOCK_FOO_BAR as well. The environment overrides the file, PENSTOCK_ overrides KAFKA_.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from penstock.cli.errors import Failed
from penstock.client.properties import parse_properties

PREFIXES = ("KAFKA_CFG_", "KAFKA_", "PENSTOCK_")
NOT_SETTINGS = re.compile(
    r"PENSTOCK_(BOOTSTRAP|CONTEXT|DEBUG|COMPLETE)|_PENSTOCK.*"
    r"|KAFKA_(HEAP_OPTS|OPTS|JVM_.*|LOG4J_.*|GC_.*|JMX_.*|HOME|VERSION|URL|DEBUG|KRAFT_.*|CLUSTER_ID)"
)


def read_settings(path: Path) -> dict[str, str]:
    """The settings in a file: TOML if its name ends in .toml, otherwise properties."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Failed(f"{path} is not a text in UTF-8: is it the right file?") from None
    except OSError as error:
        raise Failed(f"cannot read {path}: {error.strerror}; check the path and its permissions") from error
    return parse_toml(text, path) if path.suffix == ".toml" else dict(parse_properties(text))


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings in environment variables."""
    found: dict[str, str] = {}
    for prefix in ("KAFKA_", "KAFKA_CFG_", "PENSTOCK_"):
        for variable, value in environment.items():
            if next((p for p in PREFIXES if variable.startswith(p)), "") != prefix or NOT_SETTINGS.fullmatch(variable):
                continue
            if name := _name_of(variable[len(prefix) :]):
                found[name] = value
    return found


def _name_of(rest: str) -> str:
    marks = {"_": ".", "__": "_", "___": "-"}
    return re.sub(r"_+", lambda found: marks.get(found[0], found[0]), rest).lower()


# --- TOML -------------------------------------------------------------------------------------------------------------


def parse_toml(text: str, path: Path) -> dict[str, str]:
    """Tables are parts of names: `log.retention.ms = 5` and `[log.retention]` `ms = 5` are the same."""
    import tomllib

    try:
        return dict(_flat(tomllib.loads(text), ""))
    except tomllib.TOMLDecodeError as error:
        raise Failed(f"{path} is no valid TOML: {error}") from None


def _flat(value: object, name: str) -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            for key, inner in value.items():
                yield from _flat(inner, f"{name}.{key}" if name else key)
        case list():
            yield name, ",".join(map(str, value))
        case bool():
            yield name, "true" if value else "false"
        case _:
            yield name, str(value)
