"""Small files that are replaced as a whole and carry their own checksums.

The content is JSON, readable by operators, and is stored twice, each copy behind a line with its length and checksum:
one damaged bit is detected and survived. A file appears under its name only when it is complete: it is written under a
temporary name, synced and renamed, then its directory is synced.
"""

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from crc32c import crc32c

from penstock.log.space import Reserve, full_or
from penstock.model.ports import Disk, File

_MARK = "penstock"


class Damaged(Exception):
    """Stored bytes differ from the bytes written. The message names the file and the defect."""


class NewerFormat(Exception):
    """A file was written by a later version of the program."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The value of a checked file, and the damage of one of its copies, if any."""

    value: Any
    damage: str | None


def encode(kind: str, version: int, value: Any) -> bytes:
    """Encodes a value as the file's bytes."""
    body = json.dumps(value, separators=(",", ":")).encode()
    head = f"{_MARK} {kind} {version} {len(body)}".encode()
    copy = b"%b %08x\n%b\n" % (head, crc32c(body, crc32c(head)), body)
    return copy + copy


def decode(kind: str, version: int, data: bytes, path: str) -> Checked:
    """Decodes the value; raises Damaged if neither copy is intact, NewerFormat if a later version wrote it."""
    half = len(data) // 2
    found: Checked | None = None
    trouble = ""
    for copy in (data[:half], data[half:]):
        try:
            value = _decode_copy(kind, version, copy)
        except ValueError as error:
            trouble = f"{path}: {error}"
            continue
        found = found or Checked(value, None)
    if found is None:
        raise Damaged(trouble or f"{path}: empty")
    if trouble or len(data) % 2:
        return Checked(found.value, trouble or f"{path}: odd length")
    return found


def _decode_copy(kind: str, version: int, copy: bytes) -> Any:
    line, newline, rest = copy.partition(b"\n")
    words = line.split(b" ")
    if not newline or len(words) != 5 or words[0] != _MARK.encode() or words[1] != kind.encode():
        raise ValueError(f"is not a file of kind {kind!r}")
    try:
        found_version, length, checksum = int(words[2]), int(words[3]), int(words[4], 16)
    except ValueError:
        raise ValueError("has a damaged first line") from None
    body, end = rest[:-1], rest[-1:]
    head = line.rpartition(b" ")[0]
    if length != len(body) or end != b"\n" or crc32c(body, crc32c(head)) != checksum or words[4] != b"%08x" % checksum:
        raise ValueError("does not match its checksum")
    if found_version > version:
        raise NewerFormat(
            f"was written by a newer Penstock (format {found_version}, this program reads up to {version}): "
            "upgrade the program, or restore the directory from a backup made before the upgrade"
        )
    return json.loads(body)


def read(disk: Disk, path: str, kind: str, version: int) -> Checked:
    """Reads and checks a file."""
    file = disk.open(path)
    try:
        data = file.read(0, file.size())
    finally:
        file.close()
    try:
        return decode(kind, version, data, path)
    except NewerFormat as error:
        raise NewerFormat(f"{path} {error}") from None


async def replace(disk: Disk, path: str, kind: str, version: int, value: Any, reserve: Reserve | None = None) -> None:
    """Replaces the value atomically: a reader finds the old one or the new one. DiskFull leaves the old one."""
    aside = path + ".new"
    await write_whole(disk, aside, encode(kind, version, value), reserve)
    try:
        disk.rename(aside, path)
    except OSError as error:
        _discard(disk, aside)
        raise full_or(error) from error
    await disk.sync_dir(path.rpartition("/")[0])


async def write_whole(disk: Disk, path: str, data: bytes, reserve: Reserve | None = None) -> None:
    """Writes a whole file and syncs it; DiskFull if there is no space even with the reserve, and no file is left."""

    def work() -> File:
        return write_now(disk, path, data)

    file = work() if reserve is None else reserve.spend(work)
    try:
        await file.sync()
    finally:
        file.close()


def write_now(disk: Disk, path: str, data: bytes) -> File:
    """Writes a whole file and leaves it open, not synced; DiskFull if there is no space, and no file is left."""
    try:
        file = disk.open(path, create=True)
    except OSError as error:
        raise full_or(error) from error
    try:
        file.truncate(0)
        file.write(0, data)
    except OSError as error:
        file.close()
        _discard(disk, path)
        raise full_or(error) from error
    return file


def _discard(disk: Disk, path: str) -> None:
    with suppress(OSError):  # the file has no meaning, and is overwritten or removed later
        disk.unlink(path)
