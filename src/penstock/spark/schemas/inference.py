"""Infers the schema of a topic's values from some of its records.

A field gets a type that all values seen so far have; a field without one is left out, with a reason. Whole numbers are
BIGINT, all other numbers DOUBLE, texts STRING: dates are not guessed.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import orjson
import pyarrow as pa

from penstock.client.blocking import SyncClient
from penstock.client.consumer.consumer import Message
from penstock.spark.schemas.ddl import ELEMENT, ddl_of

RECORDS_MAX = 1000
_NOT_IN_DELTA = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that Delta does not allow in a column's name."""
_INT64 = range(-(2**63), 2**63)
SHOWN_MAX = 60
DEPTH_MAX = 50


class NotObjects(ValueError):
    """Most values of a topic are not JSON objects; the message says what to do."""


@dataclass
class _Seen:
    """The kinds of values seen in one place, and what lies below."""

    kinds: set[str] = field(default_factory=set)
    fields: "dict[str, _Seen]" = field(default_factory=dict)
    elements: "_Seen | None" = None

    def add(self, value: object, depth: int = 0) -> None:
        match value:
            case None:
                return
            case list() | dict() if depth > DEPTH_MAX:
                self.kinds.add("too deep")
            case bool():
                self.kinds.add("boolean")
            case int():
                self.kinds.add("integer" if value in _INT64 else "number")
            case float():
                self.kinds.add("number")
            case str():
                self.kinds.add("text")
            case list():
                self.kinds.add("array")
                self.elements = self.elements or _Seen()
                for each in value:
                    self.elements.add(each, depth + 1)
            case dict():
                self.kinds.add("object")
                for name, each in value.items():
                    self.fields.setdefault(name, _Seen()).add(each, depth + 1)


_TYPES = {
    frozenset({"boolean"}): pa.bool_(),
    frozenset({"integer"}): pa.int64(),
    frozenset({"number"}): pa.float64(),
    frozenset({"integer", "number"}): pa.float64(),
    frozenset({"text"}): pa.string(),
}


@dataclass(frozen=True, slots=True)
class Inferred:
    """A schema, and what it rests on."""

    ddl: str
    objects: int
    others: int
    """Values that are not JSON objects."""
    left_out: Sequence[str]
    """Fields without a type, each with the reason."""


def sample_of(client: SyncClient, topic: str, at_most: int = RECORDS_MAX) -> list[Message]:
    """The first records of a topic, as a pipeline reads them."""
    found: list[Message] = []
    for batch in client.consume_batches(topic, until_end=True, isolation="read_committed", max_batch=at_most):
        found += batch.messages()
        if len(found) >= at_most:
            break
    return found[:at_most]


def inferred(topic: str, records: Iterable[Message]) -> Inferred:
    """The schema of values. Raises NotObjects if less than half of them are JSON objects."""
    seen = _Seen()
    objects, others = 0, []
    for record in records:
        if record.value is None:
            continue
        try:
            document = orjson.loads(record.value)
        except ValueError:
            document = None
        if isinstance(document, dict):
            objects += 1
            seen.add(document)
        else:
            others.append(record)
    if not objects or len(others) > objects:
        raise NotObjects(_refusal(topic, objects, others))
    left_out: list[str] = []
    fields = _fields(seen, "", left_out)
    if not fields:
        raise NotObjects(
            f"The values of {topic} are JSON objects without a field that has one type "
            f"({', '.join(left_out) or 'they are empty'}): write a penstock.yml with decode: {{value: json}}, which "
            "keeps them as text."
        )
    return Inferred(ddl_of(fields), objects, len(others), left_out)


def _refusal(topic: str, objects: int, others: Sequence[Message]) -> str:
    advice = (
        "choose another topic with -t, or write a penstock.yml with decode: {value: text} (or none, which keeps bytes)"
    )
    if not others:
        return f"The records of {topic} have no values, and a schema needs some: {advice}."
    first = others[0]
    text = repr((first.value or b"")[: SHOWN_MAX + 1])[1:]
    shown = text if len(first.value or b"") <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
    return (
        f"{len(others):,} of {objects + len(others):,} values of {topic} are not JSON objects, such as {shown} at "
        f"offset {first.offset} of partition {first.partition}: {advice}."
    )


def _fields(seen: _Seen, path: str, left_out: list[str]) -> list[pa.Field]:
    fields: list[pa.Field] = []
    for name, below in seen.fields.items():
        where = f"{path}{name}"
        if not name or _NOT_IN_DELTA.search(name):
            left_out.append(f"{where or repr(name)} (a table cannot have the name)")
        elif name.lower() in (each.name.lower() for each in fields):
            left_out.append(f"{where} (the same name in other letters)")
        elif (kind := _type(below, where, left_out)) is not None:
            fields.append(pa.field(name, kind))
    return fields


def _type(seen: _Seen, path: str, left_out: list[str]) -> pa.DataType | None:
    kinds = frozenset(seen.kinds)
    if kinds in _TYPES:
        return _TYPES[kinds]
    if kinds == {"object"}:
        below = _fields(seen, f"{path}.", left_out)
        if below:
            return pa.struct(below)
        left_out.append(f"{path} (an object without fields)")
    elif kinds == {"array"} and seen.elements is not None:
        element = _type(seen.elements, f"{path}[]", left_out)
        return None if element is None else pa.list_(pa.field(ELEMENT, element))
    else:
        left_out.append(f"{path} ({' and '.join(sorted(kinds)) if kinds else 'only null or empty'})")
    return None
