r"""Record formats of `consume`: kcat's letters, or JSON.

%t topic  %p partition  %o offset  %k key  %s %v value  %h headers  %T timestamp in ms
%K length of the key  %S length of the value, both -1 for none  %% a percent sign  \n \t \r \0 \xHH \\ as elsewhere
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.cli.errors import Misused

if TYPE_CHECKING:
    from penstock.client.consumer.consumer import Message

Printer = Callable[["Message"], bytes]

PLAIN = r"%s\n"
WITH_KEY = r"%k\t%s\n"
_PIECE = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)|([^%\\]+)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\", '"': b'"', "'": b"'"}


def _number(value: int) -> bytes:
    return str(value).encode()


def _headers(message: "Message") -> bytes:
    return b",".join(_name(name) + b"=" + (value or b"") for name, value in message.headers)


def _name(name: str) -> bytes:
    """The bytes of a header's name; those that are not UTF-8 were kept as surrogates."""
    return name.encode("utf-8", "surrogateescape")


LETTERS: dict[str, Printer] = {
    "t": lambda message: message.topic.encode(),
    "p": lambda message: _number(message.partition),
    "o": lambda message: _number(message.offset),
    "k": lambda message: message.key or b"",
    "s": lambda message: message.value or b"",
    "v": lambda message: message.value or b"",
    "h": _headers,
    "T": lambda message: _number(message.timestamp_ms),
    "K": lambda message: _number(-1 if message.key is None else len(message.key)),
    "S": lambda message: _number(-1 if message.value is None else len(message.value)),
    "%": lambda _message: b"%",
}


def printer_of(form: str) -> Printer:
    """The function that turns a record into bytes; raises Misused for an unknown letter."""
    if form == "json":
        return as_json
    parts = [_part(found) for found in _PIECE.finditer(form)]
    return lambda message: b"".join(part if isinstance(part, bytes) else part(message) for part in parts)


def _part(found: "re.Match[str]") -> bytes | Printer:
    letter, escape, text = found.groups()
    if text is not None:
        return bytes(text, "utf-8")
    if letter is not None:
        if letter not in LETTERS:
            raise Misused(f"%{letter} means nothing in a format: the letters are {' '.join(LETTERS)}")
        return LETTERS[letter]
    if len(escape) == 3:
        return bytes.fromhex(escape[1:])
    if escape not in _ESCAPES:
        raise Misused(f"\\{escape} means nothing in a format: use \\n, \\t, \\r, \\0, \\xHH or \\\\")
    return _ESCAPES[escape]


def as_json(message: "Message") -> bytes:
    """One JSON object in a line. Bytes that are not UTF-8 become base64, under a name that ends in `_base64`.

    `penstock produce -f json` makes the same record of it, in `cli/produce/json_records.py`.
    """
    row: dict[str, object] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp_ms": message.timestamp_ms,
        **_named("key", message.key),
        **_named("value", message.value),
    }
    if message.headers:
        row["headers"] = [{**_named("name", _name(name)), **_named("value", value)} for name, value in message.headers]
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def _named(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}
