"""Builds the Maven projects that tests lean on: once per change of their sources, however many processes ask.

Nothing is skipped: a machine without Java or Maven fails the tests that need them.
"""

import fcntl
import hashlib
import os
import subprocess
from pathlib import Path

STDERR = 2
SOON_DONE = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def build(project: Path) -> Path:
    """Brings the project's `target` up to date and returns it. One process builds, the others wait for it."""
    target = project / "target"
    target.mkdir(exist_ok=True)
    stamp = target / "built-from"
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = _fingerprint(project)
        if not stamp.exists() or stamp.read_text() != wanted:
            command = ["mvn", "-q", "-B", "-Dstyle.color=never", "package"]
            options = f"{SOON_DONE} {os.environ.get('MAVEN_OPTS', '')}"
            subprocess.run(  # our own output may be read by a program
                command, cwd=project, check=True, stdout=STDERR, env={**os.environ, "MAVEN_OPTS": options}
            )
            stamp.write_text(wanted)
    return target


def _fingerprint(project: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted([project / "pom.xml", *project.glob("src/**/*.java")]):
        digest.update(f"{path.relative_to(project)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
