"""Builds the Go program that tests lean on. Go itself knows what has changed; here only one process builds at a time.

Nothing is skipped: a machine without Go fails the tests that need it.
"""

import fcntl
import os
import subprocess
from pathlib import Path

# Unoptimised, and without C: on a clean machine Go compiles its own library first, which takes a third less this way.
FLAGS = ("-gcflags=all=-N -l",)


def build(project: Path) -> Path:
    """Brings the program up to date and returns its path."""
    target = project / "target"
    target.mkdir(exist_ok=True)
    program = target / "program"
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(
            ["go", "build", *FLAGS, "-o", str(program), "."],
            cwd=project,
            check=True,
            env=os.environ | {"CGO_ENABLED": "0"},
        )
    return program
