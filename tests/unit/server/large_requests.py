"""Large requests for every API, built from the declarations, and a meter of the loop's longest callback.

A request is widened at one array at a time: that array has many elements, every other array has one. Texts and numbers
are either the same in all elements (`repeated`), or different in each (`distinct`).
"""

import asyncio
import gc
import time
from asyncio import events
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from penstock.wire.declare import Array, Field, FieldType, Request, Struct
from penstock.wire.types import BOOL, Fixed, Text

TOPIC: Final = "many"
GIVEN: Final[dict[str, Any]] = {
    "timeout_ms": 30_000,
    "session_timeout_ms": 30_000,
    "rebalance_timeout_ms": 30_000,
    "replication_factor": 1,
    "num_partitions": 1,
    "count": 2,
    "resource_type": 2,
    "config_operation": 0,
    "protocol_type": "consumer",
    "generation_id_or_member_epoch": -1,
    "election_type": 0,
    "response_partition_limit": 0x7FFFFFFF,
    "isolation_level": 0,
    "current_leader_epoch": -1,
    "timestamp": -1,
    "validate_only": False,
    "upgrade_type": 1,
    "max_version_level": 1,
    "key_type": 0,
    "types_filter": (),
    "states_filter": (),
    "member_epoch": 0,
    "subscribed_topic_regex": None,
    "server_assignor": None,
    "group_instance_id": None,
    "instance_id": None,
}
"""Values without which a request is refused before its elements are handled."""


def arrays_of(message: type[Struct], version: int, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yields every array of a message, by its path of field names."""
    for field in message.FIELDS:
        if version not in field.versions or field.tag is not None:
            continue
        here = (*path, field.name)
        kind = field.type
        if isinstance(kind, Array):
            yield here
            kind = kind.item
        if isinstance(kind, type):
            yield from arrays_of(kind, version, here)


def widened(
    request: type[Request], version: int, wide: tuple[str, ...], count: int, topic_id: bytes, *, is_distinct: bool
) -> Request:
    """Builds a request whose array `wide` has `count` elements."""
    maker = _Maker(version, wide, count, topic_id, is_distinct=is_distinct)
    made = maker.struct(request, (), 0)
    assert isinstance(made, Request)
    return made


class _Maker:
    def __init__(self, version: int, wide: tuple[str, ...], count: int, topic_id: bytes, *, is_distinct: bool) -> None:
        self._version = version
        self._wide = wide
        self._count = count
        self._topic_id = topic_id
        self._is_distinct = is_distinct

    def struct(self, kind: type[Struct], path: tuple[str, ...], number: int) -> Struct:
        fields = {f.name: self._field(f, (*path, f.name), number) for f in kind.FIELDS if self._is_there(f)}
        return kind(**fields)

    def _is_there(self, field: Field) -> bool:
        return self._version in field.versions and field.tag is None

    def _field(self, field: Field, path: tuple[str, ...], number: int) -> Any:
        if isinstance(field.type, Array):
            if path == self._wide:
                return [self._value(field.type.item, path, each) for each in range(self._count)]
            return (self._value(field.type.item, path, number),)
        if field.name in GIVEN:
            return GIVEN[field.name]
        return self._value(field.type, path, number)

    def _value(self, kind: FieldType, path: tuple[str, ...], number: int) -> Any:
        if isinstance(kind, type):
            return self.struct(kind, path, number)
        name = path[-1]
        if isinstance(kind, Text):
            return f"{TOPIC}-{number}" if self._is_distinct and number else TOPIC
        if isinstance(kind, Fixed):
            return self._number(kind, name, number)
        return b"metadata"

    def _number(self, kind: Fixed, name: str, number: int) -> Any:
        if kind.name == "uuid":
            if "topic" not in name:
                return bytes(16)
            return number.to_bytes(16, "big") if self._is_distinct and number else self._topic_id
        if kind == BOOL:
            return False
        if "broker" in name or "replicas" in name or "node" in name or "leader" in name:
            return 1
        return number % (1 << 8 * kind.size_bytes - 1) if self._is_distinct else 0


class Stretches:
    """The longest callback of the loop, in the thread's CPU time."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.where = ""

    def note(self, took_s: float, handle: events.Handle) -> None:
        if took_s > self.longest_s:
            self.longest_s = took_s
            self.where = repr(handle)


@contextmanager
def measured() -> Iterator[Stretches]:
    """Measures every callback of the running loop. Garbage is collected before, not during the measurement."""
    found = Stretches()
    original = events.Handle._run

    def run(self: events.Handle) -> None:
        began_s = time.thread_time()
        try:
            original(self)
        finally:
            found.note(time.thread_time() - began_s, self)

    gc.collect()
    gc.disable()
    events.Handle._run = run  # type: ignore[method-assign]
    try:
        yield found
    finally:
        gc.enable()
        events.Handle._run = original  # type: ignore[method-assign]


async def rest() -> None:
    """Lets background work run."""
    for _ in range(10):
        await asyncio.sleep(0)
