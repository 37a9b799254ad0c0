"""Builds expensive test dependencies once, whatever the number of processes that need them."""

import fcntl
from collections.abc import Callable
from pathlib import Path


def make_once(folder: Path, made_from: str, make: Callable[[], object]) -> None:
    """Calls `make` to fill the folder, unless it was made from the same `made_from`. Other processes wait meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / "made-from"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != made_from:
            make()
            stamp.write_text(made_from)
