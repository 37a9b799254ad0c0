"""Results of checks of a machine, a broker or a pipeline, with a fix for each failed check."""

from typing import NamedTuple


class Finding(NamedTuple):
    """Result of one check."""

    check: str
    is_well: bool
    found: str
    fix: str | None = None


def well(check: str, found: str) -> Finding:
    """A check that passed."""
    return Finding(check, True, found)


def wrong(check: str, found: str, fix: str) -> Finding:
    """A check that failed, with its fix."""
    return Finding(check, False, found, fix)
