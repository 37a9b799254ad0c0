"""Another version of pyspark beside the one that is installed: by pip into a folder of its own, once per machine.

Whoever has the folder first on PYTHONPATH runs that Spark; everything else comes from where it came before. It lies
outside of what is checked and tested: pyspark brings thousands of modules.
"""

import subprocess
import sys
from pathlib import Path

from tests.once import make_once

FOLDER = Path(__file__).parents[2] / ".cache"


def installed(version: str) -> Path:
    """The folder."""
    folder = FOLDER / f"pyspark-{version}"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
    command += ["--target", str(folder), f"pyspark=={version}"]
    make_once(folder, version, lambda: subprocess.run(command, check=True))
    return folder
