"""A virtual environment that contains only the wheel of `./dev release`, and a broker started from it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness.release import build
from tests.system.commands import ENVIRONMENT

ROOT = Path(__file__).parents[2]
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")
CLEAN = {name: value for name, value in ENVIRONMENT.items() if not name.startswith(("PYTHON", "PYTEST", "VIRTUAL_ENV"))}


def share_of_the_machine() -> float:
    """The load per core, at least 1: the factor by which everything takes longer on a busy machine."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class Bench:
    """An environment with the wheel installed, and a working directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bin = directory / "environment" / "bin"

    def run(self, *command: str | Path, given: bytes = b"") -> str:
        done = subprocess.run(
            command, cwd=self.directory, env=CLEAN, input=given, capture_output=True, timeout=3600, check=False
        )
        assert done.returncode == 0, (done.stdout + done.stderr).decode()
        return done.stdout.decode()

    def penstock(self, *arguments: str, given: bytes = b"") -> str:
        return self.run(self.bin / "penstock", *arguments, given=given)

    def install(self, *packages: str) -> None:
        self.run(self.bin / "python", *PIP, "install", *packages)

    def begin(self, *packages: str) -> None:
        """Makes the environment, with the wheel and these packages."""
        self.run(sys.executable, "-m", "venv", self.directory / "environment")
        self.install(str(build(self.directory / "dist").wheel), *packages)


def waited_s(pid: int) -> float:
    """How long a process has waited for a processor; 0 where the system does not count that."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def start(bench: Bench) -> "tuple[subprocess.Popen[str], float]":
    """Starts `penstock dev`; returns the process and the seconds until it reports that it is ready.

    The time in which other processes had the processors, and this one could have run, is left out.
    """
    began_s = time.perf_counter()
    process = subprocess.Popen(
        [bench.bin / "penstock", "dev"],
        cwd=bench.directory,
        env=CLEAN,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert "ready in" in process.stdout.readline()
    return process, time.perf_counter() - began_s - waited_s(process.pid)


def stop(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        assert process.wait(300) == 0
    finally:
        process.kill()
        assert process.stdout is not None
        process.stdout.close()
