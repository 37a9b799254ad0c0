"""Frameworks built on Kafka clients, in an environment of their own: some need an older client than ours.

Built once per change of `frameworks/requirements.txt`, by one process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from harness.once import make_once

FOLDER = Path(__file__).parent / "frameworks"
REQUIREMENTS = FOLDER / "requirements.txt"
TARGET = FOLDER / "target"
VENV = TARGET / "venv"
DESCRIPTION = """
import importlib.metadata, json, sys
found = importlib.metadata.metadata(sys.argv[1])
print(json.dumps(found.get_payload() or found["Description"]))
"""


def command(name: str) -> str:
    """A command of the environment, which is updated first."""
    make_once(TARGET, REQUIREMENTS.read_text(), _install)
    return str(VENV / "bin" / name)


def _install() -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(VENV)], check=True)
    install = ["install", "-q", "--disable-pip-version-check", "--no-compile", "-r", str(REQUIREMENTS)]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(VENV), *install], check=True, env=environment())


def environment() -> dict[str, str]:
    """Our environment without our own modules: the other Python must not find them."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def example(package: str) -> str:
    """The first Python example in the installed package's own description."""
    describe = [command("python"), "-c", DESCRIPTION, package]
    shown = subprocess.run(describe, check=True, capture_output=True, env=environment()).stdout
    text = str(json.loads(shown))
    return text.partition("```python\n")[2].partition("```")[0]
