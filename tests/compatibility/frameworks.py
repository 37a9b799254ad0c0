"""Frameworks that stand on Kafka clients, in an environment of their own: some want an older client than we have here.

Built once per change of `frameworks/requirements.txt`, however many processes ask.
"""

import fcntl
import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "frameworks"
REQUIREMENTS = FOLDER / "requirements.txt"
DESCRIPTION = """
import importlib.metadata, json, sys
found = importlib.metadata.metadata(sys.argv[1])
print(json.dumps(found.get_payload() or found["Description"]))
"""


def command(name: str) -> str:
    """A command of the environment, which is brought up to date."""
    target = FOLDER / "target"
    target.mkdir(exist_ok=True)
    stamp = target / "built-from"
    wanted = REQUIREMENTS.read_text()
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(target / "venv")], check=True)
            pip = [str(target / "venv" / "bin" / "pip"), "install", "-q", "-r", str(REQUIREMENTS)]
            subprocess.run(pip, check=True)
            stamp.write_text(wanted)
    return str(target / "venv" / "bin" / name)


def example(package: str) -> str:
    """The first Python example of a package's own description, as it was installed."""
    shown = subprocess.run([command("python"), "-c", DESCRIPTION, package], check=True, capture_output=True).stdout
    text = str(json.loads(shown))
    return text.partition("```python\n")[2].partition("```")[0]
