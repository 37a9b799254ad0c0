"""What one look at a machine, a broker or a pipeline has shown, and what to do about it."""

from typing import NamedTuple


class Finding(NamedTuple):
    """What one look has shown."""

    check: str
    is_well: bool
    found: str
    fix: str | None = None


def well(check: str, found: str) -> Finding:
    """Nothing to do."""
    return Finding(check, True, found)


def wrong(check: str, found: str, fix: str) -> Finding:
    """Something to do."""
    return Finding(check, False, found, fix)
