"""Commands run in a directory, and brokers that they start, as separate processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PENSTOCK = (sys.executable, "-m", "penstock")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "KAFKA_"))}
READY_LINES = 3


class Shell:
    """Runs commands in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(
        self,
        *arguments: str,
        given: bytes = b"",
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        limit_s: float = 300,
    ) -> "subprocess.CompletedProcess[bytes]":
        """Runs a command behind a prefix such as `setpriv …`, and returns the completed process."""
        return subprocess.run(
            [*prefix, *PENSTOCK, *arguments],
            cwd=self.directory,
            env=ENVIRONMENT | dict(environment or {}),
            input=given,
            capture_output=True,
            timeout=limit_s,
            check=False,
        )

    def __call__(self, *arguments: str, given: bytes = b"") -> str:
        done = self.run(*arguments, given=given)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def fails(self, *arguments: str) -> str:
        """Runs a command that must fail, and returns its error message."""
        done = self.run(*arguments)
        assert (done.returncode, done.stdout) == (1, b"")
        return done.stderr.decode()


@dataclass
class Running:
    """A broker that is ready."""

    process: "subprocess.Popen[str]"
    said: str
    """Its output when it became ready."""
    log_path: Path

    @property
    def address(self) -> str:
        """The address that it listens on."""
        return self.said.splitlines()[1].split()[1].replace("localhost", "127.0.0.1")

    @property
    def log(self) -> str:
        """Its log so far."""
        return self.log_path.read_text()


@contextmanager
def a_broker(
    directory: Path,
    *arguments: str,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    complains: bool = False,
) -> Iterator[Running]:
    """`penstock dev …` or `penstock server …` in a directory. It must exit with 0, and log no warnings or errors."""
    log_path = directory / "broker.log"
    with log_path.open("w") as log:
        process = subprocess.Popen(
            [*prefix, *PENSTOCK, *arguments],
            cwd=directory,
            env=ENVIRONMENT | dict(environment or {}),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    with process:
        try:
            said = "".join(process.stdout.readline() for _ in range(READY_LINES))
            assert said.endswith("\n"), f"not ready: {log_path.read_text()}"
            yield Running(process, said, log_path)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
    assert process.returncode == 0, log_path.read_text()
    if not complains:
        lines = log_path.read_text().splitlines()
        told = [line for line in lines if " INFO " not in line and " WARNING loop: " not in line]
        assert told == ["Stopping."], "apart from what it does, and from stalls, which come with a busy machine"
