"""A broker that is killed and restarted: a separate process, always on the same port and the same data."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from harness.ports import free_port
from tests.system.commands import ENVIRONMENT, PENSTOCK

ROOT = Path(__file__).parents[2]
READY_S = 60.0
END_S = 20.0
CUT = signal.SIGUSR1
"""The signal that cuts the power of a victim on a lossy disk."""
DAMAGE = "Damage in the data directory"


class Victim:
    """A broker to start, kill and start again. Killed at the end, whatever happens."""

    def __init__(self, directory: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self.data = directory / "data"
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.starts = 0
        self._settings = dict(settings or {})
        self._log_path = directory / "victim.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Victim":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(END_S)

    def log_to(self, path: Path) -> None:
        """Redirects its log, which otherwise lies beside its data."""
        self._log_path = path

    def command(self) -> Sequence[str]:
        """`penstock server`, as a user starts it."""
        return [*PENSTOCK, "server"]

    def start(self) -> None:
        """Returns at once; `wait_ready` waits."""
        own = {"listeners": f"PLAINTEXT://{self.address}", "log.dirs": str(self.data), **self._settings}
        variables = {f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in own.items()}
        self.starts += 1
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), cwd=ROOT, env=ENVIRONMENT | variables, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def wait_ready(self) -> None:
        """Returns when the port accepts connections."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"it ended by itself with {self.process.returncode}: {self.log[-2000:]}"
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.01)
        raise AssertionError(f"not ready in {READY_S} s: {self.log[-2000:]}")

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Ends it by a signal; returns its exit code. It must not have ended before."""
        assert self.process.poll() is None, f"it ended by itself with {self.process.returncode}: {self.log[-2000:]}"
        self.process.send_signal(number)
        return self.process.wait(END_S)

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The process that was started last."""
        assert self._process is not None
        return self._process

    @property
    def log(self) -> str:
        """Its log of all starts."""
        return self._log_path.read_text(errors="replace")

    @property
    def damages(self) -> list[str]:
        """Damage that it reported in its data: a crash must cause none."""
        return [line for line in self.log.splitlines() if DAMAGE in line]


class ComposedVictim(Victim):
    """A node assembled by `victim_server`: on a lossy disk, with a planted bug, or both."""

    def __init__(
        self,
        directory: Path,
        *,
        lossy_seed: int | None = None,
        plant: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, settings=settings)
        self._lossy_seed = lossy_seed
        self._plant = plant

    def command(self) -> Sequence[str]:
        """Each start has a seed of its own."""
        command = [sys.executable, "-m", "tests.system.victim_server", str(self.data), str(self.port)]
        if self._lossy_seed is not None:
            command += ["--lossy", str(self._lossy_seed * 1_000_000 + self.starts)]
        if self._plant is not None:
            command += ["--plant", self._plant]
        return command + [f"--set={name}={value}" for name, value in self._settings.items()]
