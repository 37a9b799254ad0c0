"""Checks of `doctor` on this machine: the broker's file, the data directory, disk space, descriptors, the clock."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.cli.disk_room import room_finding
from penstock.cli.errors import Failed
from penstock.model.findings import Finding, well, wrong

DESCRIPTORS_MIN = 8192
"""A node keeps up to 5,120 files and maps open; the rest is for connections."""
RELEASED_S = 1_790_000_000
"""A correct clock shows no earlier time: this was released later."""
MORE_DESCRIPTORS = "ulimit -Hn 65536 before the broker starts, or LimitNOFILE=65536 in its unit"


def local_findings(data: Path) -> Iterator[Finding]:
    """All findings except those about the broker's file."""
    yield from data_findings(data)
    yield descriptor_finding()
    yield clock_finding()


# --- the broker's file ------------------------------------------------------------------------------------------------


def config_findings(path: Path, *, allows_plaintext: bool = False) -> Iterator[Finding]:
    """Checks that the broker's file can be read and used, and lists settings without effect."""
    from penstock.cli.settings.settings_file import read_settings
    from penstock.cli.settings.validation import validate

    try:
        settings = read_settings(path)
    except Failed as error:
        yield wrong("config", str(error), _make_readable(path, error.__cause__))
        return
    result = validate(settings, allows_plaintext=allows_plaintext)
    for each in (*result.errors, *result.refusals):
        yield wrong("config", each, f"edit {path}")
    if result.is_usable:
        yield well("config", f"{path} has {len(settings)} settings, and a broker starts with them")
    if result.without_effect:
        count = len(result.without_effect)
        what = "of them has no effect, or not all of it" if count == 1 else "of them have no effect, or not all of it"
        yield well("config", f"{count} {what}: {result.listed}")


def _make_readable(path: Path, cause: BaseException | None) -> str:
    match cause:
        case PermissionError():
            return f"let the broker's user read it: chown or chmod u+r {path}"
        case FileNotFoundError():
            return "name the file that the broker is started with: -c server.properties"
    return f"{path} must be a text: server.properties as Kafka has it, or TOML in a file that ends in .toml"


# --- the data directory -----------------------------------------------------------------------------------------------


def data_findings(path: Path) -> Iterator[Finding]:
    """Checks the data directory, or its nearest existing parent: permission, free space, format."""
    place = path
    while not place.exists():
        place = place.parent
    yield _permission_finding(path, place)
    room = shutil.disk_usage(place)
    yield room_finding("disk", room.free, room.total, str(place))
    if (path / "directory").exists():
        yield _format_finding(path)


def _permission_finding(path: Path, place: Path) -> Finding:
    if os.access(place, os.W_OK | os.X_OK):
        return well("permission", f"{place} can be written")
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        found = f"{place} lies on a file system that is mounted read-only"
        return wrong("permission", found, "mount it for writing (mount -o remount,rw), or choose another directory")
    found = f"this user may not write to {place}"
    return wrong("permission", found, f"give it to the broker's user (chown -R), or choose another than {path}")


def _format_finding(path: Path) -> Finding:
    from penstock.cli.serve.run import FORMAT_VERSION

    try:
        words = (path / "directory").read_bytes().split(b"\n", 1)[0].split()
        version = int(words[2])
    except (OSError, IndexError, ValueError):
        return wrong("format", f"{path / 'directory'} cannot be read", "restore it from a backup")
    if version > FORMAT_VERSION:
        found = f"{path} has format {version}, and this version knows {FORMAT_VERSION}"
        return wrong("format", found, "upgrade penstock: pip install -U penstock")
    return well("format", f"{path} has format {version}")


# --- the machine ------------------------------------------------------------------------------------------------------


def descriptor_finding() -> Finding:
    """Checks the hard limit, to which a node raises its own; every connection and open segment needs a descriptor."""
    import resource

    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= limit < DESCRIPTORS_MIN:
        return wrong("descriptors", f"a process of this user may open {limit} files only", MORE_DESCRIPTORS)
    return well("descriptors", f"a process may open {'any number of' if limit < 0 else limit} files")


def clock_finding(now_s: float | None = None) -> Finding:
    """Checks that the clock is not before our own release; `self_report` compares it with the broker's clock."""
    now_s = time.time() if now_s is None else now_s
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_s))
    if now_s < RELEASED_S:
        return wrong("clock", f"it is not {shown}", "let NTP set the clock: timedatectl set-ntp true")
    return well("clock", shown)
