"""Which code a result is of."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def revision() -> str:
    """The last commit that changed anything but results; where there is no repository, nothing."""
    command = ["git", "log", "-1", "--format=%h", "--", ".", ":!docs/results"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
