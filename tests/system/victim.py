"""A broker that is killed and started again: a process of its own, always on the same port and the same data."""

import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.system.commands import ENVIRONMENT, PENSTOCK

ROOT = Path(__file__).parents[2]
READY_S = 60.0
END_S = 20.0
CUT = signal.SIGUSR1
"""How a victim on a lossy disk is told that its power fails."""
DAMAGE = "Damage in the data directory"
PORTS = range(20_000, 32_000)
"""Below those that outgoing connections are given."""
_taken: list[socket.socket] = []


def free_port(*, is_kept: bool = True) -> int:
    """One that nobody listens on now, and that nobody else is given while whoever listens there is down.

    It stays taken for as long as this process lives: without that, clients of a node that is being started again may
    meet a node of another cluster, which another test has given the same port, and write to its topics. A command that
    looks for itself whether a port is free must not find it taken (`is_kept`).
    """
    while True:
        port = random.choice(PORTS)
        probe = socket.socket()
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            probe.close()
            continue
        if is_kept:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # who does likewise may listen there
            _taken.append(probe)
        else:
            probe.close()
        return port


class Victim:
    """Start it, kill it, start it again. Killed at the end, however the story ends."""

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
        """What it says goes there, and not beside its data."""
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
        """Returns when somebody can connect."""
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
        """Ends it by a signal; its exit code. It must not have ended before."""
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
        """What it said in all its lives."""
        return self._log_path.read_text(errors="replace")

    @property
    def damages(self) -> list[str]:
        """What it found wrong in its data: after a crash there is nothing to be found."""
        return [line for line in self.log.splitlines() if DAMAGE in line]


class ComposedVictim(Victim):
    """A node put together by `victim_server`: on a lossy disk, with a planted bug, or both."""

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
