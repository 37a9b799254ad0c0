"""Builds the Maven projects that tests use: once per change of their sources, whatever the number of processes.

Nothing is skipped: a machine without Java or Maven fails the tests that need them.
"""

import hashlib
import os
import subprocess
from pathlib import Path

from harness.once import make_once

STDERR = 2
SOON_DONE = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def build(project: Path) -> Path:
    """Brings the project's `target` up to date and returns it."""
    target = project / "target"
    make_once(target, _fingerprint(project), lambda: _package(project))
    return target


def _package(project: Path) -> None:
    command = ["mvn", "-q", "-B", "-Dstyle.color=never", "package"]
    options = f"{SOON_DONE} {os.environ.get('MAVEN_OPTS', '')}"
    variables = {**os.environ, "MAVEN_OPTS": options}
    subprocess.run(command, cwd=project, check=True, stdout=STDERR, env=variables)  # a program may read our stdout


def _fingerprint(project: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted([project / "pom.xml", *project.glob("src/**/*.java")]):
        digest.update(f"{path.relative_to(project)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
