"""Builds the Go program that tests use. Go itself detects changes; here only one process builds at a time.

Nothing is skipped: on a machine without Go the tests that need it fail.
"""

import fcntl
import os
import subprocess
from pathlib import Path

# Unoptimised, and without C: on a clean machine Go compiles its own library first, which takes a third less this way.
FLAGS = ("-gcflags=all=-N -l",)


def build(project: Path) -> Path:
    """Updates the program and returns its path."""
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
