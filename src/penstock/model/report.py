"""Reports of cores to operators: pure data, which a driver logs and a simulator puts into its trace.

A kind is declared once, in the room that emits it: its stable name, its sentence, and its meaning to an operator.
docs/operating/logs.md is made from these declarations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

NAMED_MAX: Final = 5
"""Number of partitions, topics and so on that one line names; the others are only counted."""

Value: TypeAlias = int | str | None


class Level(IntEnum):
    """Log level, numbered as in `logging`."""

    DEBUG = 10
    INFO = 20
    WARNING = 30


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of report. Fields are named in braces in its sentence."""

    name: str
    """Stable, because scripts search for it."""
    sentence: str
    meaning: str
    """Meaning for the operator, and the action to take, if any."""
    level: Level = Level.INFO
    of_each: str | None = None
    """Field that names the subject, for kinds with thousands of reports at a time, which then share a line."""
    alike: tuple[str, ...] = ()
    """Fields that must be equal for reports to share a line."""

    def __call__(self, **fields: Value) -> "Report":
        """A report of this kind."""
        return Report(self, fields)


class Report(NamedTuple):
    """One report: its kind and the values of its fields."""

    kind: Kind
    fields: Mapping[str, Value]

    @property
    def sentence(self) -> str:
        """The sentence with its fields filled in."""
        return self.kind.sentence.format_map(self.fields)

    def __str__(self) -> str:
        return f"{self.kind.name}: {self.sentence}"
