"""A schema is inferred from records; fields without one type are left out with the reason."""

import json

import pytest

from penstock.client.consumer.consumer import Message
from penstock.spark.schemas.ddl import fields_of
from penstock.spark.schemas.inference import Inferred, NotObjects, inferred


def record(offset: int, value: bytes | None) -> Message:
    return Message("clicks", 0, offset, 0, None, value, ())


def of(*values: object) -> Inferred:
    texts = [each if isinstance(each, bytes) or each is None else json.dumps(each).encode() for each in values]
    return inferred("clicks", [record(offset, text) for offset, text in enumerate(texts)])


def test_types() -> None:
    found = of(
        {"page": "home", "ms": 5, "ratio": 1, "new": True, "user": {"id": 1, "tags": ["a"]}, "big": 2**64},
        {"page": None, "ms": 6, "ratio": 0.5, "user": {"id": None, "tags": []}, "points": [{"x": 1}, {"y": 1.5}]},
        None,
    )
    assert found.ddl == (
        "page STRING, ms BIGINT, ratio DOUBLE, new BOOLEAN, user STRUCT<id: BIGINT, tags: ARRAY<STRING>>, big DOUBLE, "
        "points ARRAY<STRUCT<x: BIGINT, y: DOUBLE>>"
    )
    assert (found.objects, found.others, found.left_out) == (2, 0, [])
    assert fields_of(found.ddl) is not None


def test_fields_that_are_left_out() -> None:
    found = of(
        {"id": 1, "ID": 2, "mixed": 1, "none": None, "empty": [], "nothing": {}, "a name": 1, "in": {"bad": 1}},
        {"id": 1, "mixed": "x", "in": {"bad": [], "good": 1}, "select-me": 1},
    )
    assert found.ddl == "id BIGINT, in STRUCT<good: BIGINT>, `select-me` BIGINT"
    assert sorted(found.left_out) == [
        "ID (the same name in other letters)",
        "a name (a table cannot have the name)",
        "empty[] (only null or empty)",
        "in.bad (array and integer)",
        "mixed (integer and text)",
        "none (only null or empty)",
        "nothing (an object without fields)",
    ]


def test_a_few_values_may_be_something_else() -> None:
    assert of({"id": 1}, {"id": 2}, b"{", [1]).others == 2


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            [b"plain"],
            "1 of 1 values of clicks are not JSON objects, such as 'plain' at offset 0 of partition 0: choose",
        ),
        ([{"id": 1}, b"7", b"\xff"], "2 of 3 values of clicks are not JSON objects, such as '7' at offset 1"),
        ([b"x" * 99], "xxx… at offset 0"),
        ([None], "The records of clicks have no values"),
        ([{}], r"JSON objects without a field that has one type \(they are empty\)"),
        ([{"a": None}], r"\(a \(only null or empty\)\)"),
    ],
)
def test_what_is_refused(values: list[object], sentence: str) -> None:
    with pytest.raises(NotObjects, match=sentence):
        of(*values)


def test_a_document_as_deep_as_the_sea() -> None:
    deep = b'{"x": ' + b"[" * 900 + b"]" * 900 + b', "id": 1}'
    found = of(deep)
    assert found.ddl == "id BIGINT"
    assert found.left_out[0].endswith("[] (too deep)")
