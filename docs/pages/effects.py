"""Which settings this version acts on: those whose names the code reads, found in the code itself.

A setting that is declared, checked and described but whose name stands nowhere else is accepted and does nothing. What
reads a name without acting on it is listed by hand, with what is true instead.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from penstock.metadata.settings.broker import BROKER_SETTINGS, SYNONYMS
from penstock.metadata.settings.group import GROUP_SETTINGS
from penstock.metadata.settings.topic import TOPIC_SETTINGS

SOURCES = Path(__file__).parents[2] / "src" / "penstock"
DECLARES = re.compile(
    r"metadata/settings/(broker.*|topic|group|checks|describe|setting)\.py|cli/(contradictions|config|reassign_throttle)\.py"
    r"|penstock/spark/|cli/verify_(rdkafka|topic)\.py"
)
"""Files that declare, check and describe settings, and act on none; or that know others' settings by the same names."""
READ_IN_VAIN = {
    "compression.type": "no: a batch stays as its producer compressed it",
    "remote.log.storage.system.enable": "no: there is no remote storage",
}
"""Names that are read, but change nothing that a user could notice."""
PARTLY = {
    "cleanup.policy": "in part: nothing is compacted yet, and with `compact` alone everything is kept",
    "log.cleanup.policy": "in part: nothing is compacted yet, and with `compact` alone everything is kept",
}
"""Names that are acted on, but not in all that they promise."""
_READERS = ("value", "number", "is_on", "text", "get")


@cache
def effective() -> frozenset[str]:
    """The names of all settings that somebody acts on, under that name or one that they stand in for."""
    read = set(names_read()) - READ_IN_VAIN.keys()
    owned = {**TOPIC_SETTINGS, **GROUP_SETTINGS}
    stand_ins = {synonym.name for name in read & owned.keys() for synonym in owned[name].synonyms}
    brokers = (read | stand_ins) & BROKER_SETTINGS.keys()
    return frozenset(read | brokers | {other for name in brokers for other in SYNONYMS.get(name, ())})


def names_read() -> Iterator[str]:
    """Names of settings that stand in the code."""
    known = BROKER_SETTINGS.keys() | TOPIC_SETTINGS.keys() | GROUP_SETTINGS.keys()
    for path in sorted(SOURCES.rglob("*.py")):
        if DECLARES.search(str(path)):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Constant(value=str(text)) if text in known:
                    yield text
                case ast.Call(func=ast.Attribute(attr=attribute), args=[ast.JoinedStr() as form]) if (
                    attribute in _READERS
                ):
                    pattern = re.compile("".join(map(_pattern, form.values)))
                    yield from filter(pattern.fullmatch, known)


def _pattern(part: ast.expr) -> str:
    return re.escape(part.value) if isinstance(part, ast.Constant) and isinstance(part.value, str) else ".+"
