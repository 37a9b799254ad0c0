"""Decodes and encodes messages.

Readers and writers are compiled on first use and cached. For any input, reading returns a message or raises a
ProtocolError; it allocates at most the input's size times a constant. Requests of unknown clients are read within a
budget, because that constant is about fifty.
"""

import struct
from functools import cache
from typing import TypeVar

from penstock.model.errors import MalformedMessage, RequestTooCostly, UnsupportedVersion
from penstock.wire.budget import Budget
from penstock.wire.compile import (
    Breathe,
    BudgetedReader,
    PatientWriter,
    Reader,
    Writer,
    compile_budgeted_reader,
    compile_patient_writer,
    compile_reader,
    compile_writer,
)
from penstock.wire.declare import Message

M = TypeVar("M", bound=Message)


@cache
def reader_for(message: type[Message], version: int) -> Reader:
    """The compiled reader; raises UnsupportedVersion for a version that is not declared."""
    _check_version(message, version)
    return compile_reader(message, version)


@cache
def budgeted_reader_for(message: type[Message], version: int) -> BudgetedReader:
    """The compiled reader that charges a budget; raises UnsupportedVersion for a version that is not declared."""
    _check_version(message, version)
    return compile_budgeted_reader(message, version)


@cache
def writer_for(message: type[Message], version: int) -> Writer:
    """The compiled writer; raises UnsupportedVersion for a version that is not declared."""
    _check_version(message, version)
    return compile_writer(message, version)


@cache
def patient_writer_for(message: type[Message], version: int) -> PatientWriter:
    """The compiled writer that calls `breathe`; raises UnsupportedVersion for a version that is not declared."""
    _check_version(message, version)
    return compile_patient_writer(message, version)


def go_on() -> None:
    """The default for `breathe`: does nothing."""


def _check_version(message: type[Message], version: int) -> None:
    if version not in message.VERSIONS:
        first, last = message.VERSIONS.first, message.VERSIONS.last
        raise UnsupportedVersion(f"{message.__name__} has versions {first} to {last}, not {version}")


def read_from(
    message: type[M],
    version: int,
    buffer: memoryview | bytes | bytearray,
    position: int = 0,
    budget: Budget | None = None,
    breathe: Breathe = go_on,
) -> tuple[M, int]:
    """The message at `position`, and the position after it. Raises RequestTooCostly beyond the budget.

    With a budget, `breathe` is called after every few elements.
    """
    try:
        if budget is None:
            value, end = reader_for(message, version)(buffer, position)
        else:
            value, end = budgeted_reader_for(message, version)(buffer, position, *budget, breathe)
    except RequestTooCostly as error:
        assert budget is not None
        raise RequestTooCostly(
            f"{message.__name__} v{version}: {error} "
            f"({budget.elements:,} elements, {budget.memory_bytes:,} bytes of memory)"
        ) from None
    except (IndexError, struct.error):
        raise MalformedMessage(f"{message.__name__} v{version} ends before its last field") from None
    except UnicodeDecodeError:
        raise MalformedMessage(f"{message.__name__} v{version} holds a string that is not UTF-8") from None
    return value, end


def decode(message: type[M], version: int, buffer: memoryview | bytes | bytearray, position: int = 0) -> M:
    """The message that fills the buffer from `position` to its end."""
    value, end = read_from(message, version, buffer, position)
    if end != len(buffer):
        raise MalformedMessage(f"{message.__name__} v{version} is followed by {len(buffer) - end} bytes of something")
    return value


def decode_request(
    message: type[M],
    version: int,
    buffer: memoryview | bytes | bytearray,
    position: int = 0,
    budget: Budget | None = None,
    breathe: Breathe = go_on,
) -> M:
    """The request at `position`; bytes after it are ignored, as in Kafka. Small requests need no budget.

    librdkafka sends three extra bytes with Metadata from version 11 on: fields that this version no longer has.
    """
    return read_from(message, version, buffer, position, budget, breathe)[0]


def write_into(out: bytearray, message: Message, version: int, breathe: Breathe | None = None) -> None:
    """Appends the message; raises ValueError for a value that does not fit its field."""
    try:
        if breathe is None:
            writer_for(type(message), version)(message, out)
        else:
            patient_writer_for(type(message), version)(message, out, breathe)
    except (AttributeError, TypeError, struct.error, UnicodeEncodeError) as error:
        raise ValueError(
            f"{type(message).__name__} v{version} holds a value that cannot be written: {error}"
        ) from error


def encode(message: Message, version: int) -> bytearray:
    """The message as bytes."""
    out = bytearray()
    write_into(out, message, version)
    return out
