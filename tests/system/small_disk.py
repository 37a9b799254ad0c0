"""A separate file system of 64 MB, so that a disk can really be full: tmpfs, or ext4 in a file. Needs root.

It has few inodes, so that it can also run out of files.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SIZE_MIB = 64
FILES_MAX = 1024
KINDS = ("tmpfs", "ext4")


class CannotMount(Exception):
    """This machine does not allow mounting; the message explains why."""


@contextmanager
def a_small_disk(directory: Path, kind: str | None = None) -> Iterator[Path]:
    """Yields the mount point. Without a kind, the first one that can be mounted."""
    place = directory / "small"
    place.mkdir()
    refusals = []
    for each in KINDS if kind is None else (kind,):
        try:
            _mount(directory, place, each)
            break
        except (OSError, subprocess.CalledProcessError) as error:
            refusals.append(f"{each}: {getattr(error, 'stderr', None) or error}")
    else:
        raise CannotMount(f"no file system of {SIZE_MIB} MB can be mounted here, which takes root: {refusals}")
    try:
        yield place
    finally:
        _run("umount", "--lazy", str(place))


def _mount(directory: Path, place: Path, kind: str) -> None:
    if kind == "tmpfs":
        _run("mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m,nr_inodes={FILES_MAX}", "tmpfs", str(place))
        return
    image = directory / "image"
    with image.open("wb") as file:
        file.truncate(SIZE_MIB * 1024 * 1024)
    _run("mkfs.ext4", "-q", "-m", "0", "-N", str(FILES_MAX), str(image))
    _run("mount", "-o", "loop", str(image), str(place))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
