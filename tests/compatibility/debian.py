"""Commands that Debian packages: looked for, and installed when they are missing and we may."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

INSTALL_TIMEOUT_S = 300


class Missing(Exception):
    """A command is not here; the text says how to get it."""


def command(name: str, package: str) -> str:
    """The path of a command. Whoever is root gets its package; one process installs, the others wait for it."""
    with (Path(tempfile.gettempdir()) / f"install-{package}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = shutil.which(name)
        if found is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
            _install(package)
            found = shutil.which(name)
    if found is None:
        raise Missing(f"The command {name} is missing: install it, on Debian with 'apt-get install {package}' as root.")
    return found


def _install(package: str) -> None:
    for step in ["update"], ["install", "--yes", "--no-install-recommends", package]:
        subprocess.run(
            ["apt-get", "-q", *step],
            check=True,
            capture_output=True,
            timeout=INSTALL_TIMEOUT_S,
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
        )
