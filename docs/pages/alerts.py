"""The alert rules of deploy/prometheus, as the metrics page lists them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "penstock-alerts.yml"
_RULE = re.compile(r'- alert: (?P<name>\w+)\n.*?summary: "(?P<summary>.*?)"\n +advice: "(?P<advice>.*?)"\n', re.DOTALL)


class Alert(NamedTuple):
    """One alert rule."""

    name: str
    summary: str
    advice: str


def alerts() -> Iterator[Alert]:
    """All alerts, in the order of the file."""
    for found in _RULE.finditer(RULES.read_text(encoding="utf-8")):
        summary = re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"*\1*", found["summary"])
        yield Alert(found["name"], re.sub(r"\{\{ \$value[^}]*\}\}", "*n*", summary), found["advice"])
