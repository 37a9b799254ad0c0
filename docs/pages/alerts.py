"""The alert rules of deploy/prometheus, as far as a page tells of them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "penstock-alerts.yml"
_RULE = re.compile(r'- alert: (?P<name>\w+)\n.*?summary: "(?P<summary>.*?)"\n +advice: "(?P<advice>.*?)"\n', re.DOTALL)


class Alert(NamedTuple):
    """One rule."""

    name: str
    summary: str
    advice: str


def alerts() -> Iterator[Alert]:
    """In the order of the file."""
    for found in _RULE.finditer(RULES.read_text(encoding="utf-8")):
        summary = re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"*\1*", found["summary"])
        yield Alert(found["name"], re.sub(r"\{\{ \$value[^}]*\}\}", "*n*", summary), found["advice"])
