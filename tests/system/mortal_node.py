"""A cluster node in a process of its own that is killed, paused or loses its power, and is started again."""

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.system.commands import ENVIRONMENT
from tests.system.older_build import PRESENT
from tests.system.victim import ROOT

END_S: Final = 20.0


class Broken(AssertionError):
    """A guarantee was violated."""


class MortalNode:
    """One node across restarts."""

    def __init__(
        self,
        directory: Path,
        node_id: int,
        settings: Mapping[str, str],
        lossy_seed: int | None = None,
        plant: str | None = None,
        prefix: Sequence[str] = (),
        *,
        has_witness: bool = False,
    ) -> None:
        self.node_id = node_id
        self.data = directory / f"node-{node_id}"
        self.log_path = directory / f"node-{node_id}.log"
        self.witness_path = directory / f"node-{node_id}.witness"
        self.file = directory / f"node-{node_id}.properties"
        self.build = PRESENT
        """The build that its next start runs."""
        self.file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._lossy_seed = lossy_seed
        self._plant = plant
        self._prefix = prefix
        """A command that runs the node, as in another network namespace."""
        self._has_witness = has_witness
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def start(self) -> None:
        command = [*self._prefix, sys.executable, "-m", "tests.system.victim_node", str(self.file)]
        self.starts += 1
        if self._lossy_seed is not None:
            command += ["--lossy", str(self._lossy_seed * 1_000_000 + self.node_id * 10_000 + self.starts)]
        if self._plant is not None:
            command += ["--plant", self._plant]
        if self._has_witness:
            command += ["--witness", str(self.witness_path)]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=ENVIRONMENT | dict(self.build.environment),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def end(self, number: int) -> None:
        self.send(number)
        self.wait()

    def send(self, number: int) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise Broken(f"node {self.node_id} ended by itself: {self.log[-2000:]}")
        self._process.send_signal(number)

    def wait(self) -> None:
        assert self._process is not None
        self._process.wait(END_S)

    def stop(self) -> None:
        """Stops the node in whatever state it is."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(END_S)

    @property
    def logs(self) -> Path:
        """The directory of its partitions."""
        return self.data / "logs"

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")
