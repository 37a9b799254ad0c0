"""Another version of pyspark beside the installed one: pip installs it into a folder of its own, once per machine.

A process with the folder first on PYTHONPATH runs that Spark; all other modules are found as before. The folder is
outside the linted and tested tree, because pyspark has thousands of modules.
"""

import subprocess
import sys
from pathlib import Path

from harness.once import make_once

FOLDER = Path(__file__).parents[2] / ".cache"


def installed(version: str) -> Path:
    """The folder, installed if needed."""
    folder = FOLDER / f"pyspark-{version}"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
    command += ["--target", str(folder), f"pyspark=={version}"]
    make_once(folder, version, lambda: subprocess.run(command, check=True))
    return folder
