"""Where compiled kernels are kept between processes: a directory of our own, that nobody else can write to.

Numba trusts what it finds in its cache: whoever can write there can run code in our name.
"""

import os
import tempfile
from pathlib import Path

VARIABLE = "PENSTOCK_CACHE"
_OTHERS_MAY_WRITE = 0o022


class NoCache(Exception):
    """There is no place to keep compiled code; the text says why."""


def directory() -> Path:
    """The directory for compiled code, made if need be: below $PENSTOCK_CACHE, or in the user's cache directory."""
    try:
        path = _root() / "kernels"
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
        tempfile.TemporaryFile(dir=path).close()
    except (OSError, RuntimeError) as trouble:
        raise NoCache(str(trouble)) from None
    if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_MAY_WRITE:
        raise NoCache(f"others can write to {path}")
    return path


def _root() -> Path:
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "penstock"
    return Path.home() / ".cache" / "penstock"
