"""The directory that keeps compiled kernels between processes; only this user may write to it.

Numba trusts its cache: a user who can write to it can run code as this user.
"""

import os
import tempfile
from pathlib import Path

VARIABLE = "PENSTOCK_CACHE"
_OTHERS_MAY_WRITE = 0o022


class NoCache(Exception):
    """No directory can keep compiled code; the message gives the reason."""


def directory() -> Path:
    """The directory for compiled code, created if missing: below $PENSTOCK_CACHE, or in the user's cache directory."""
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
