"""The evidence for a figure.

Invariant: every figure states how it is known, and `measured` applies only to the size that was measured.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SAME: Final = 0.1
"""Sizes that differ by less than this share count as the same."""


class Tag(StrEnum):
    """How a figure is known."""

    MEASURED = "measured"
    """Measured on real processes, at this size."""
    SIMULATED = "simulated"
    """Measured in virtual time, at this size: the cores are real, the machines are not."""
    EXTRAPOLATED = "extrapolated"
    """Computed from another size, or from several measurements."""
    ARITHMETIC = "arithmetic"
    """Follows from the input alone; needs no measurement."""


@dataclass(frozen=True, slots=True)
class Coefficient:
    """One number from a results page."""

    value: float
    unit: str
    tag: Tag
    page: str
    """The page, relative to docs/results."""
    where: str
    """The place on the page, and the conditions of the measurement."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a plan."""

    name: str
    value: float
    unit: str
    tag: Tag
    pages: tuple[str, ...] = ()
    reach: float | None = None
    """The size relative to the measured size; None if there is no single measured size."""


def known(tag: Tag, wanted: float, seen: float) -> tuple[Tag, float]:
    """The tag of a figure for the size `wanted`, measured at `seen`, and the ratio of the two."""
    reach = wanted / seen
    return (tag if abs(reach - 1) <= SAME else Tag.EXTRAPOLATED), reach


def pages(*coefficients: Coefficient) -> tuple[str, ...]:
    """The pages of these coefficients, each once."""
    return tuple(dict.fromkeys(each.page for each in coefficients))
