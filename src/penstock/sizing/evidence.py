"""What a figure rests on.

Invariant: nobody can make a figure without saying how it is known, and `measured` is only what was seen at that size.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SAME: Final = 0.1
"""Sizes that differ by less than this share count as the same."""


class Tag(StrEnum):
    """How a figure is known."""

    MEASURED = "measured"
    """Seen on real processes, at this size."""
    SIMULATED = "simulated"
    """Seen in virtual time, at this size: the cores are real, the machines are not."""
    EXTRAPOLATED = "extrapolated"
    """Worked out from another size, or from several measurements together."""
    ARITHMETIC = "arithmetic"
    """Follows from what was asked for; nothing had to be measured."""


@dataclass(frozen=True, slots=True)
class Coefficient:
    """One number out of a page of results."""

    value: float
    unit: str
    tag: Tag
    page: str
    """The page, below docs/results."""
    where: str
    """Where on the page, and under which conditions."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a plan."""

    name: str
    value: float
    unit: str
    tag: Tag
    pages: tuple[str, ...] = ()
    reach: float | None = None
    """How many times the size at which it was seen, or nothing where no single size says that."""


def known(tag: Tag, wanted: float, seen: float) -> tuple[Tag, float]:
    """The tag of a figure for one size, seen at another, and how far that is."""
    reach = wanted / seen
    return (tag if abs(reach - 1) <= SAME else Tag.EXTRAPOLATED), reach


def pages(*coefficients: Coefficient) -> tuple[str, ...]:
    """Where these are told of, each page once."""
    return tuple(dict.fromkeys(each.page for each in coefficients))
