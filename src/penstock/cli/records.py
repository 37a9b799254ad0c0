"""From a line to the key and the value of a record."""

from penstock.cli.failing import Failed, Misused


class Splitter:
    """What becomes of each line."""

    def __init__(self, key: str | None, delimiter: str | None, *, empty_is_null: bool = False) -> None:
        if key is not None and delimiter is not None:
            raise Misused("-k gives every record the same key, -K takes keys from the lines: choose one of them")
        if delimiter == "":
            raise Misused("-K needs a delimiter: -K: for example")
        self._key = None if key is None else key.encode()
        self._delimiter = None if delimiter is None else delimiter.replace("\\t", "\t").encode()
        self._empty_is_null = empty_is_null
        self._number = 0

    def split(self, line: bytes) -> tuple[bytes | None, bytes | None]:
        """Key and value."""
        self._number += 1
        key, value = self._key, line
        if self._delimiter is not None:
            key, found, value = line.partition(self._delimiter)
            if not found:
                shown = self._delimiter.decode()
                raise Failed(f"line {self._number} has no {shown!r} between key and value; records before it were sent")
        return key, None if self._empty_is_null and not value else value
