"""A program of another language behind a pipe: one JSON object per line in, one per line out, in order.

An answer is what was asked for, or `{"error": kind, "message": text}`. Whoever does not answer in time is ended.
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
    """The program said that it could not do it; `kind` is its word for why."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Answerer:
    """The running program; what it writes to its standard error is shown when it dies."""

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
        """The process."""
        return self._process.pid

    def ask(self, command: str, **question: object) -> Json:
        """One answer to one question."""
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
        # What was asked of a program that died may lie unsent in the pipe.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        self._stdout.close()
        self._log.close()

    def _log_tail(self) -> str:
        self._process.wait(ANSWER_TIMEOUT_S)
        end = self._log.seek(0, 2)
        self._log.seek(max(0, end - LOG_TAIL_BYTES))
        return self._log.read().decode(errors="replace")
