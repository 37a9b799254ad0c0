"""Reads records in JSON, one object per line, as `penstock consume -f json` writes them.

    {"topic": "t", "partition": 2, "offset": 41, "timestamp_ms": 1700000000000, "key": "k", "value_base64": "/w==",
     "headers": [{"name": "source", "value": null}]}

`value` is required: text, or null for a tombstone. Bytes that are not UTF-8 are in `value_base64` instead; the same
goes for `key` and for the `name` and `value` of a header. `topic` and `offset` are not used: the topic is named on the
command line, and the broker assigns offsets. Any other field is an error, because a typo would lose data.
"""

import json
from base64 import b64decode
from typing import Any, Final

from penstock.cli.produce.parsing import BadLine, Headers, Outgoing

INT32_END: Final = 2**31
TIME_END: Final = 2**62
"""Timestamps are smaller, so that the difference of two has 64 bits, as a batch requires."""
_BASE64: Final = "_base64"
_HEADER_KEY_ERRORS: Final = "surrogateescape"  # as in records: bytes of a name that are not UTF-8 survive in a str
_FIELDS: Final = {
    *("topic", "partition", "offset", "timestamp_ms", "headers"),
    *("key", f"key{_BASE64}", "value", f"value{_BASE64}"),
}
_HEADER_FIELDS: Final = {"name", f"name{_BASE64}", "value", f"value{_BASE64}"}


class _Wrong(Exception):
    """What is wrong with a line."""


class JsonParser:
    """See the module. A given partition replaces that of the lines; headers are added to those of the lines."""

    def __init__(self, *, keeps_partitions: bool = True, partition: int | None = None, headers: Headers = ()) -> None:
        self._keeps_partitions = keeps_partitions
        self._partition = partition
        self._headers = headers
        self._number = 0

    def parse(self, line: bytes) -> Outgoing | None:
        """See Parse; an empty line has no record."""
        self._number += 1
        if not line.strip():
            return None
        try:
            return self._record(_object(line))
        except _Wrong as wrong:
            raise BadLine(self._number, str(wrong)) from None

    def _record(self, row: dict[str, Any]) -> Outgoing:
        _check_fields(row, _FIELDS, "")
        partition = _number(row, "partition", 0, INT32_END)
        if self._partition is not None:
            partition = self._partition
        elif not self._keeps_partitions:
            partition = None
        if "value" not in row and f"value{_BASE64}" not in row:
            raise _Wrong('has no "value": a tombstone has "value": null')
        return Outgoing(
            key=_data(row, "key"),
            value=_data(row, "value"),
            headers=_headers(row) + self._headers,
            partition=partition,
            timestamp_ms=_number(row, "timestamp_ms", -TIME_END, TIME_END),
        )


def _object(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode(), object_pairs_hook=_once)
    except UnicodeDecodeError:
        raise _Wrong("is not UTF-8: bytes that are no text belong into value_base64") from None
    except RecursionError:
        raise _Wrong("is nested too deeply for a record") from None
    except json.JSONDecodeError as error:
        what = f"{error.msg} at column {error.colno}"
        raise _Wrong(f"is not JSON ({what}): -f lines sends lines as they are") from None
    except ValueError as error:
        raise _Wrong(f"is no record in JSON ({error})") from None
    if not isinstance(row, dict):
        raise _Wrong('is no JSON object with a "value": -f lines sends lines as they are')
    return row


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Wrong(f"has {twice!a} twice")
    return row


def _check_fields(row: dict[str, Any], known: set[str], where: str) -> None:
    if unknown := [name for name in row if name not in known]:
        raise _Wrong(f"has {where}a field {unknown[0]!a}, which is none of a record: {', '.join(sorted(known))}")


def _number(row: dict[str, Any], name: str, first: int, end: int) -> int | None:
    value = row.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Wrong(f'has a "{name}" that is no whole number')
    if not first <= value < end:
        raise _Wrong(f'has a "{name}" of {value}, which is not between {first} and {end - 1}')
    return value


def _data(row: dict[str, Any], name: str, where: str = "") -> bytes | None:
    """The bytes of a field, from text or base64; None if it is null or missing."""
    in_base64 = name + _BASE64
    if in_base64 not in row:
        text = row.get(name)
        if text is None:
            return None
        if not isinstance(text, str):
            raise _Wrong(f'has {where}a "{name}" that is neither a string nor null: write JSON in a string')
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise _Wrong(f'has {where}a "{name}" with half of a surrogate pair: use "{in_base64}"') from None
    if name in row:
        raise _Wrong(f'has {where}both "{name}" and "{in_base64}"')
    text = row[in_base64]
    if not isinstance(text, str):
        raise _Wrong(f'has {where}a "{in_base64}" that is no string')
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise _Wrong(f'has {where}a "{in_base64}" that is not base64 ({error})') from None


def _headers(row: dict[str, Any]) -> Headers:
    entries = row.get("headers")
    if entries is None:
        return ()
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise _Wrong('has "headers" that are no list of objects with "name" and "value"')
    headers = []
    for number, each in enumerate(entries, 1):
        where = f"in header {number} "
        _check_fields(each, _HEADER_FIELDS, where)
        name = _data(each, "name", where)
        if name is None:
            raise _Wrong(f'has {where}no "name"')
        if "value" not in each and f"value{_BASE64}" not in each:
            raise _Wrong(f'has {where}no "value"')
        headers.append((name.decode("utf-8", _HEADER_KEY_ERRORS), _data(each, "value", where)))
    return tuple(headers)
