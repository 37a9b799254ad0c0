"""Kafka's own code behind a pipe: one long-lived Java process that answers requests in order.

Maven builds it when its sources have changed.
"""

import base64
import json
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

from harness import maven
from penstock.records.rows import Record

PROJECT = Path(__file__).parent / "java"

Json = dict[str, Any]


def java_command(program: str) -> list[str]:
    """Command line of one of our Java programs; heap and collector suit a small machine."""
    target = maven.build(PROJECT)
    return ["java", "-Xmx1g", "-XX:+UseSerialGC", "-cp", f"{target / 'classes'}:{target / 'lib'}/*", program]


class OracleError(Exception):
    """The oracle reported an error; `kind` is the Java exception, the text describes it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Oracle:
    """The running process. Use it as a context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(java_command("penstock.Oracle"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        self._stdin.close()
        self._stdout.close()

    @property
    def _stdin(self) -> IO[bytes]:
        return cast("IO[bytes]", self._process.stdin)

    @property
    def _stdout(self) -> IO[bytes]:
        return cast("IO[bytes]", self._process.stdout)

    def ask(self, command: str, **question: object) -> Json:
        """Sends one request and returns the response."""
        (answer,) = self.ask_all([{"command": command, **question}])
        return answer

    def ask_all(self, questions: Iterable[Mapping[str, object]]) -> Iterator[Json]:
        """The responses to many requests; requests are sent while earlier responses are still being read."""
        asked = [json.dumps(question).encode() + b"\n" for question in questions]
        writer = threading.Thread(target=self._send, args=(asked,), daemon=True)
        writer.start()
        unread = len(asked)
        try:
            while unread:
                line = self._stdout.readline()
                unread -= 1
                answer = cast("Json", json.loads(line))  # a line is empty if the process died
                if "error" in answer:
                    raise OracleError(answer["error"], answer["message"])
                yield answer
        finally:
            for _ in range(unread):  # a caller that stops early must not leave responses to the next caller
                self._stdout.readline()
            writer.join()

    def _send(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            self._stdin.write(line)
        self._stdin.flush()

    # --- the commands -------------------------------------------------------------------------------------------------

    def schemas(self) -> dict[str, str]:
        """The text of every message schema on the oracle's class path, by file name."""
        return self.ask("schemas")

    def apis(self) -> list[Json]:
        """Every API: key, name, oldest, latest_stable and latest version, listeners."""
        return cast("list[Json]", self.ask("apis")["apis"])

    def errors(self) -> list[Json]:
        """Every error: code, name, is_retriable."""
        return cast("list[Json]", self.ask("errors")["errors"])


def binary(text: str) -> bytes:
    """Decodes the bytes of a response."""
    return base64.b64decode(text)


def text(data: bytes | bytearray) -> str:
    """Encodes bytes for a request."""
    return base64.b64encode(data).decode()


def as_json(record: Record, **more: object) -> dict[str, object]:
    """Encodes a record for a request to the oracle."""
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": None if record.key is None else text(record.key),
        "value": None if record.value is None else text(record.value),
        "headers": [[key, None if value is None else text(value)] for key, value in record.headers],
        **more,
    }


def from_json(row: Mapping[str, Any]) -> Record:
    """Decodes a record of the oracle's response."""
    key, value = (None if row[field] is None else binary(row[field]) for field in ("key", "value"))
    headers = tuple((name, None if content is None else binary(content)) for name, content in row["headers"])
    return Record(row["offset"], row["timestamp"], key, value, headers)
