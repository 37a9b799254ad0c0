"""What `doctor` looks at on this machine: the data directory, room, descriptors, the clock, the broker's file."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.cli.failing import Failed

FREE_BYTES_MIN = 1024**3
FREE_PERCENT_MIN = 5
DESCRIPTORS_MIN = 4096
RELEASED_S = 1_790_000_000
"""No clock that goes right shows an earlier time: this was written later."""


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


def local_findings(data: Path, config: Path | None) -> Iterator[Finding]:
    """All of them."""
    if config is not None:
        yield from config_findings(config)
    yield from data_findings(data)
    yield descriptor_finding()
    yield clock_finding()


def config_findings(path: Path) -> Iterator[Finding]:
    """The broker's file can be read and used."""
    from penstock.cli.config import complaints_about
    from penstock.cli.settings_file import read_settings

    try:
        settings = read_settings(path)
    except Failed as error:
        yield wrong("config", str(error), f"name a file that you can read: ls -l {path}")
        return
    complaints = complaints_about(settings)
    for each in complaints:
        yield wrong("config", each, f"edit {path}")
    if not complaints:
        yield well("config", f"{path} has {len(settings)} settings, all of them usable")


def data_findings(path: Path) -> Iterator[Finding]:
    """The data directory, or the place where it would be: permission, room, format."""
    place = path
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK):
        yield wrong("permission", f"this user may not write to {place}", f"chown it, or choose another than {path}")
    else:
        yield well("permission", f"{place} can be written")
    room = shutil.disk_usage(place)
    percent = 100 * room.free // max(1, room.total)
    shown = f"{room.free / 1024**3:.1f} GB ({percent} %) free at {place}"
    if room.free < FREE_BYTES_MIN or percent < FREE_PERCENT_MIN:
        yield wrong("disk", f"only {shown}", "lower retention.ms or retention.bytes, delete topics, or add room")
    else:
        yield well("disk", shown)
    if (path / "directory").exists():
        yield _format_finding(path)


def _format_finding(path: Path) -> Finding:
    from penstock.cli.serve import FORMAT_VERSION

    try:
        words = (path / "directory").read_bytes().split(b"\n", 1)[0].split()
        version = int(words[2])
    except (OSError, IndexError, ValueError):
        return wrong("format", f"{path / 'directory'} cannot be read", "restore it from a backup")
    if version > FORMAT_VERSION:
        found = f"{path} has format {version}, and this version knows {FORMAT_VERSION}"
        return wrong("format", found, "upgrade penstock: pip install -U penstock")
    return well("format", f"{path} has format {version}")


def descriptor_finding() -> Finding:
    """Every connection and every open segment takes a descriptor."""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= limit < DESCRIPTORS_MIN:
        return wrong("descriptors", f"a process may open {limit} files", "ulimit -n 65536, or LimitNOFILE=65536")
    return well("descriptors", f"a process may open {'any number of' if limit < 0 else limit} files")


def clock_finding(now_s: float | None = None) -> Finding:
    """A clock that stands before our own release is wrong; how far others are off, `broker` checks."""
    now_s = time.time() if now_s is None else now_s
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_s))
    if now_s < RELEASED_S:
        return wrong("clock", f"it is not {shown}", "let NTP set the clock: timedatectl set-ntp true")
    return well("clock", shown)
