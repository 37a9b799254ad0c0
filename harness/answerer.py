"""A program behind a pipe: one JSON request per line in, one JSON response per line out, in order.

A response is the result, or `{"error": kind, "message": text}`. A program that does not answer in time is killed.
"""

import contextlib
import json
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any, cast

ANSWER_TIMEOUT_S = 600.0
LOG_TAIL_BYTES = 8 * 1024

Json = dict[str, Any]


class Failed(Exception):
    """The program reported an error; `kind` is the program's name for it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Answerer:
    """The running program; if it dies, the end of its standard error is in the exception."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=environment
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def ask(self, command: str, **question: object) -> Json:
        """Sends one request and returns the response."""
        watchdog = threading.Timer(ANSWER_TIMEOUT_S, self._process.kill)
        watchdog.start()
        try:
            self._stdin.write(json.dumps({"command": command, **question}).encode() + b"\n")
            self._stdin.flush()
            line = self._stdout.readline()
        except BrokenPipeError:
            line = b""
        finally:
            watchdog.cancel()
        if not line:
            raise Failed("Died", f"{self._command[0]} ended while it was asked to {command}:\n{self._log_tail()}")
        answer = cast("Json", json.loads(line))
        if "error" in answer:
            raise Failed(answer["error"], answer["message"])
        return answer

    def close(self) -> None:
        """Ends the program."""
        self._process.kill()
        self._process.wait()
        # A request to a program that died may still be buffered.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        self._stdout.close()
        self._log.close()

    def _log_tail(self) -> str:
        self._process.wait(ANSWER_TIMEOUT_S)
        end = self._log.seek(0, 2)
        self._log.seek(max(0, end - LOG_TAIL_BYTES))
        return self._log.read().decode(errors="replace")
