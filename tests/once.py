"""What tests lean on and take long to make: made once, however many processes ask."""

import fcntl
from collections.abc import Callable
from pathlib import Path


def make_once(folder: Path, made_from: str, make: Callable[[], object]) -> None:
    """Has `make` fill the folder, unless it was made from just that before. One process does, the others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / "made-from"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != made_from:
            make()
            stamp.write_text(made_from)
