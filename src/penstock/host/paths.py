"""Paths of a disk: relative to its root, "/" between the parts, never leading out of it. "" and "." are the root."""

import errno
import os


def trouble(code: int, path: str) -> OSError:
    """The OSError that the kernel would raise; Python picks the subclass by the errno."""
    return OSError(code, os.strerror(code), path)


def split(path: str) -> list[str]:
    """The parts of a path. Raises EINVAL for a path that could leave the root or has another spelling."""
    if path in {"", "."}:
        return []
    parts = path.split("/")
    for part in parts:
        if part in {"", ".", ".."} or "\0" in part:
            raise trouble(errno.EINVAL, path)
    return parts
