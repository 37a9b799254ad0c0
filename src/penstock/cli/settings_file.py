"""A broker's settings as texts by name: from server.properties, from TOML, and from the environment.

Images of Kafka turn KAFKA_FOO_BAR (or KAFKA_CFG_FOO_BAR) into foo.bar, `__` into `_` and `___` into `-`; so do we, and
take PENSTOCK_FOO_BAR as well. The environment is stronger than the file, PENSTOCK_ stronger than KAFKA_.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from penstock.cli.failing import Failed

PREFIXES = ("KAFKA_CFG_", "KAFKA_", "PENSTOCK_")
NOT_SETTINGS = re.compile(
    r"PENSTOCK_(BOOTSTRAP|DEBUG|COMPLETE)|_PENSTOCK.*"
    r"|KAFKA_(HEAP_OPTS|OPTS|JVM_.*|LOG4J_.*|GC_.*|JMX_.*|HOME|VERSION|URL|DEBUG|KRAFT_.*|CLUSTER_ID)"
)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_settings(path: Path) -> dict[str, str]:
    """The settings in a file; which syntax it has, its name says."""
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
    """Tables are parts of names: `log.retention.ms = 5` and `[log.retention]` `ms = 5` say the same."""
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


# --- properties -------------------------------------------------------------------------------------------------------


def parse_properties(text: str) -> Iterator[tuple[str, str]]:
    """Names and values as Java reads them: `=`, `:` or space between; `#` and `!` begin comments."""
    for line in _logical_lines(text):
        found = re.match(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", line, re.DOTALL)
        if found is not None:
            yield _unescaped(found[1]), _unescaped(found[2]).rstrip()


def _logical_lines(text: str) -> Iterator[str]:
    begun = ""
    for raw in text.splitlines():
        line = raw.lstrip()
        if not begun and (not line or line[0] in "#!"):
            continue
        begun += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun = begun[:-1]
            continue
        yield begun
        begun = ""
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    def plain(found: "re.Match[str]") -> str:
        escape = found[1]
        return chr(int(escape[1:], 16)) if len(escape) == 5 else _ESCAPES.get(escape, escape)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", plain, text)
