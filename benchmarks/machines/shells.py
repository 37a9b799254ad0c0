"""Shells that run scripts on a machine, over ssh or locally. All actions on a machine are such scripts."""

import shlex
import subprocess
from typing import Protocol

from benchmarks.machines.inventory import Machine

SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=10")
SECONDS = 60.0


class Failed(Exception):
    """A script failed; the text names the machine and the error."""


class Shell(Protocol):
    """Runs scripts on one machine."""

    def run(self, script: str, given: str = "", timeout_s: float = SECONDS) -> str:
        """Runs a script and returns its output; raises Failed if it fails."""
        ...


class LocalShell:
    """Runs scripts on this machine."""

    def __init__(self, name: str) -> None:
        self._name = name

    def run(self, script: str, given: str = "", timeout_s: float = SECONDS) -> str:
        return _run(["bash", "-euo", "pipefail", "-c", script], self._name, given, timeout_s)


class SshShell:
    """Runs scripts on another machine, where ssh needs no password; ports, keys and jumps belong in ~/.ssh/config."""

    def __init__(self, name: str, target: str) -> None:
        self._name = name
        self._target = shlex.split(target)

    def run(self, script: str, given: str = "", timeout_s: float = SECONDS) -> str:
        there = f"bash -euo pipefail -c {shlex.quote(script)}"
        return _run(["ssh", *SSH_OPTIONS, *self._target, there], self._name, given, timeout_s)


def shell_of(machine: Machine) -> Shell:
    return LocalShell(machine.name) if machine.ssh is None else SshShell(machine.name, machine.ssh)


def _run(command: list[str], name: str, given: str, timeout_s: float) -> str:
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise Failed(f"{name} did not answer within {timeout_s:.0f} s: {command[-1][:200]}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Failed(f"{name}: {said[-1] if said else f'exit code {done.returncode}'}: {command[-1][:200]}")
    return done.stdout
