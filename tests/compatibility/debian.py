"""Commands from Debian packages: located, and installed if they are missing and permissions allow it."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

INSTALL_TIMEOUT_S = 300


class Missing(Exception):
    """A command is missing; the text explains how to install it."""


def command(name: str, package: str) -> str:
    """The path of a command. Root installs its package if needed; one process installs, the others wait."""
    with (Path(tempfile.gettempdir()) / f"install-{package}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = shutil.which(name)
        if found is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
            _install(package)
            found = shutil.which(name)
    if found is None:
        raise Missing(f"The command {name} is missing: install it, on Debian with 'apt-get install {package}' as root.")
    return found


def unpacked(name: str, package: str) -> str:
    """The path of a command whose package is only unpacked: installing it would start a service, or need root."""
    home = Path(tempfile.gettempdir()) / f"unpacked-{package}-{os.geteuid()}"
    with (Path(tempfile.gettempdir()) / f"unpack-{package}-{os.geteuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = shutil.which(name) or shutil.which(name, path=home / "usr" / "bin")
        if found is None and shutil.which("apt-get") is not None and shutil.which("dpkg") is not None:
            _unpack(package, home)
            found = shutil.which(name, path=home / "usr" / "bin")
    if found is None:
        raise Missing(f"The command {name} is missing: install it, on Debian with 'apt-get install {package}' as root.")
    return found


def _install(package: str) -> None:
    for step in ["update"], ["install", "--yes", "--no-install-recommends", package]:
        _apt_get(*step)


def _unpack(package: str, home: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        try:
            _apt_get("download", package, cwd=directory)
        except subprocess.CalledProcessError:  # the package index is outdated
            _apt_get("update")
            _apt_get("download", package, cwd=directory)
        (file,) = Path(directory).glob("*.deb")
        whole = Path(directory) / "whole"
        subprocess.run(["dpkg", "-x", file, whole], check=True, capture_output=True, timeout=INSTALL_TIMEOUT_S)
        shutil.move(whole, home)


def _apt_get(*step: str, cwd: str | None = None) -> None:
    subprocess.run(
        ["apt-get", "-q", *step],
        check=True,
        capture_output=True,
        timeout=INSTALL_TIMEOUT_S,
        cwd=cwd,
        env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
    )
