"""The free space of a disk as a finding, for the checks of this machine and of a cluster."""

from penstock.model.findings import Finding, well, wrong

FREE_BYTES_MIN = 1024**3
FREE_PERCENT_MIN = 5
MAKE_ROOM = "lower retention.ms or retention.bytes of large topics, delete topics, or add room"


def room_finding(check: str, free_bytes: int, total_bytes: int, place: str) -> Finding:
    """Checks the free space; the total size may be unknown (-1)."""
    percent = 100 * free_bytes // total_bytes if total_bytes > 0 else None
    shown = f"{free_bytes / 1024**3:.1f} GB{'' if percent is None else f' ({percent} %)'} free at {place}"
    if free_bytes < FREE_BYTES_MIN or (percent is not None and percent < FREE_PERCENT_MIN):
        return wrong(check, f"only {shown}", MAKE_ROOM)
    return well(check, shown)
