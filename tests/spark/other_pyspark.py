"""Another version of pyspark beside the one that is installed: by pip into a folder of its own, once per machine.

Whoever has the folder first on PYTHONPATH runs that Spark; everything else comes from where it came before. It lies
outside of what is checked and tested: pyspark brings thousands of modules.
"""

import fcntl
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / ".cache"


def installed(version: str) -> Path:
    """The folder. One process installs, the others wait for it."""
    FOLDER.mkdir(exist_ok=True)
    folder = FOLDER / f"pyspark-{version}"
    stamp = folder / "installed"
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
            subprocess.run([*command, "--target", str(folder), f"pyspark=={version}"], check=True)
            stamp.write_text(version)
    return folder
