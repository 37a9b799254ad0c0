"""A Penstock node as a user starts it: `penstock dev` in a process of its own, on a free port, with ephemeral data."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

READY = re.compile(r"^Kafka\s+(\S+:\d+)")
STOP_S = 90.0


class PenstockNode:
    """Starts when entered, stops when left; a node that does not stop cleanly is an error."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.bootstrap = ""

    def __enter__(self) -> "PenstockNode":
        penstock = str(Path(sys.executable).with_name("penstock"))
        self._errors = (self._directory / "errors.txt").open("w")
        self._process = subprocess.Popen(
            [penstock, "dev", "--ephemeral", "--port", "0"],
            cwd=self._directory,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found = READY.match(line)
            if found is not None:
                self.bootstrap = found.group(1).replace("localhost", "127.0.0.1")
                return self
        raise AssertionError(f"penstock dev did not start: {self.log}")

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            code = self._process.wait(STOP_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._errors.close()
            if self._process.stdout is not None:
                self._process.stdout.close()
        assert code == 0, self.log

    @property
    def log(self) -> str:
        """The node's standard error."""
        return (self._directory / "errors.txt").read_text()
