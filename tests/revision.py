"""The revision of the code that a result belongs to."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def revision() -> str:
    """The last commit that changed anything but results; empty if there is no repository."""
    command = ["git", "log", "-1", "--format=%h", "--", ".", ":!docs/results"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
