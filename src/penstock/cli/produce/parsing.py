"""Turns lines of input into records: a line is a value, or a key and a value behind a delimiter."""

from collections.abc import Callable
from typing import NamedTuple

from penstock.cli.errors import Failed, Misused

Headers = tuple[tuple[str, bytes | None], ...]


class Outgoing(NamedTuple):
    """A record to be sent. Without a partition, the key chooses it; without a timestamp, the record is of now."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class BadLine(Failed):
    """A line that is no record."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(f"line {number} {what}")


Parse = Callable[[bytes], Outgoing | None]
"""Returns the record of a line, or None for a line without one; raises BadLine."""


class Splitter:
    """Splits lines into keys and values."""

    def __init__(
        self,
        key: str | None = None,
        delimiter: str | None = None,
        *,
        empty_is_null: bool = False,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        if key is not None and delimiter is not None:
            raise Misused("-k gives every record the same key, -K takes keys from the lines: choose one of them")
        if delimiter == "":
            raise Misused("-K needs a delimiter: -K: for example")
        self._key = None if key is None else key.encode()
        self._delimiter = None if delimiter is None else delimiter.replace("\\t", "\t").encode()
        self._empty_is_null = empty_is_null
        self._headers = headers
        self._partition = partition
        self._number = 0

    def parse(self, line: bytes) -> Outgoing:
        """See Parse."""
        self._number += 1
        key, value = self._key, line
        if self._delimiter is not None:
            key, found, value = line.partition(self._delimiter)
            if not found:
                raise BadLine(self._number, f"has no {self._delimiter.decode()!r} between key and value")
        return Outgoing(key, None if self._empty_is_null and not value else value, self._headers, self._partition)
