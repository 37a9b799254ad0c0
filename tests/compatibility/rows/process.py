"""A group member that is a process of its own, and prints the records it reads on its standard output."""

import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence

from tests.compatibility.rows.row import POLL_S, Member, Place

LEAVE_S = 90.0


class ProcessMember(Member):
    """Parses the lines that a command prints; it leaves the group on SIGINT, as on a person's ctrl-c."""

    def __init__(self, command: Sequence[str], place_of: Callable[[str], Place]) -> None:
        self._place_of = place_of
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in leave()
        # a shell starts a background process with SIGINT ignored, and its children inherit that
        heeding = ["env", "--default-signal=INT", *command]
        self._process = subprocess.Popen(heeding, stdout=subprocess.PIPE, stderr=self._log, text=True)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def poll(self) -> Sequence[Place]:
        time.sleep(POLL_S)
        assert self._process.poll() is None, f"it has ended: {self._said()}"
        found = []
        while not self._lines.empty():
            found.append(self._place_of(self._lines.get()))
        return found

    def _said(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def leave(self) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGQUIT)  # a JVM prints a thread dump
            time.sleep(2)
            told = "".join(self._lines.get() for _ in range(self._lines.qsize()))
            raise AssertionError(f"it has not left after {LEAVE_S} s: {self._said()}{told}") from None
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._log.close()
