"""Finds the settings that this version acts on: those whose names occur in the code.

A setting that is declared, checked and described but whose name occurs nowhere else is accepted and has no effect. A
test holds `penstock.metadata.settings.effects`, which the program and the page use, against what is found here.
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
    r"metadata/settings/(broker.*|topic|group|checks|describe|effects|refusals|setting)\.py"
    r"|cli/(settings/(contradictions|validation)|reassign/throttle)\.py"
    r"|penstock/(client|spark)/|cli/connection/|cli/verify/(rdkafka|topic)\.py"
)
"""Files that declare, check or describe settings without acting on them, or use other programs' settings' names."""
READ_IN_VAIN = {"compression.type", "remote.log.storage.system.enable"}
"""Settings that are read, but have no visible effect."""
BOUNDS = re.compile(r"group\.consumer\.(min|max)\..+")
"""Settings that limit what groups may set: the checks, which only check, are where they act."""
_READERS = ("value", "number", "is_on", "text", "get")


@cache
def effective() -> frozenset[str]:
    """The names of all settings that have an effect, under their own name or as a synonym of another setting."""
    read = set(names_read()) - READ_IN_VAIN | set(filter(BOUNDS.fullmatch, BROKER_SETTINGS))
    owned = {**TOPIC_SETTINGS, **GROUP_SETTINGS}
    stand_ins = {synonym.name for name in read & owned.keys() for synonym in owned[name].synonyms}
    brokers = (read | stand_ins) & BROKER_SETTINGS.keys()
    return frozenset(read | brokers | {other for name in brokers for other in SYNONYMS.get(name, ())})


def names_read() -> Iterator[str]:
    """Names of settings that occur in the code."""
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
