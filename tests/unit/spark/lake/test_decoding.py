"""Values are decoded strictly: a bad value is set aside with a reason, and never decoded in part."""

from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.lake.dead_letters import Letter
from penstock.spark.lake.decoding import Decoder
from tests.unit.spark.lake.frames import raw, us

NOON = us("2026-01-31T12:00:00")
FIELDS = pa.schema(
    [
        ("id", pa.int64()),
        ("amount", pa.float64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
        ("who", pa.struct([("name", pa.string()), ("born", pa.date32())])),
        ("is_new", pa.bool_()),
    ]
)
JSON = Decoder(value="json", fields=FIELDS)


def read(decoder: Decoder, *values: bytes | None) -> tuple[list[Any], list[Letter]]:
    good, bad = decoder.decode(raw(range(len(values)), NOON, values=values))
    assert good.schema.field("value").type == decoder.value_type
    assert good.schema.field("key").type == decoder.key_type
    return good.column("value").to_pylist(), bad


def test_bytes_stay_bytes() -> None:
    assert read(Decoder(), b"\xff", None, b"") == ([b"\xff", None, b""], [])


# --- texts


def test_texts() -> None:
    assert read(Decoder(value="text"), b"", "für".encode(), None) == (["", "für", None], [])


def test_what_is_no_text_is_put_aside_whole() -> None:
    good, (bad,) = read(Decoder(value="text"), b"one", b"\xfftwo", b"three")
    assert good == ["one", "three"]
    assert bad == Letter(
        "orders", 0, 1, NOON // 1000, b"1", b"\xfftwo", [("trace", b"1")], "NotText", "the value is not UTF-8"
    )


def test_a_key_can_be_bad_too() -> None:
    batch = raw(range(3), NOON)
    batch = batch.set_column(0, "key", pa.array([b"a", b"\xff", None], pa.binary()))
    good, (bad,) = Decoder(key="text", value="text").decode(batch)
    assert good.column("key").to_pylist() == ["a", None]
    assert (bad.offset, bad.reason) == (1, "the key is not UTF-8")


def test_a_record_that_is_bad_twice_is_put_aside_once() -> None:
    batch = raw(range(2), NOON, values=[b"\xff", b"x"])
    batch = batch.set_column(0, "key", pa.array([b"\xff", b"k"], pa.binary()))
    good, (bad,) = Decoder(key="text", value="text").decode(batch)
    assert good.num_rows == 1
    assert (bad.offset, bad.key, bad.value) == (0, b"\xff", b"\xff")


# --- JSON


def test_documents_become_columns() -> None:
    (found, none, deep), bad = read(
        JSON,
        b'{"id": 1, "amount": 2.5, "at": "2026-01-31T12:00:00Z", "day": "2026-01-31", "price": "1.25", "is_new": true}',
        None,
        b'{"tags": ["a", null], "who": {"name": "Ada", "born": "1815-12-10", "unknown": 1}, "more": [{"x": null}]}',
    )
    assert bad == []
    assert (found["id"], found["amount"], found["is_new"], str(found["price"])) == (1, 2.5, True, "1.25")
    assert (str(found["at"]), str(found["day"])) == ("2026-01-31 12:00:00+00:00", "2026-01-31")
    assert none is None, "a tombstone"
    assert (deep["tags"], deep["who"]["name"], str(deep["who"]["born"])) == (["a", None], "Ada", "1815-12-10")


def test_lines_and_spaces_do_not_matter() -> None:
    found, bad = read(JSON, b' {\n"id":\r\n 7\n}\n', b'\t{"id":8}  ')
    assert ([each["id"] for each in found], bad) == ([7, 8], [])


BAD = {
    b"": "not JSON",
    b" ": "not JSON",
    b"nonsense": "not JSON",
    b'{"id": 1': "not JSON",
    b'{"id": 1,}': "not JSON",
    b'{"id": 1} tail': "not JSON",
    b'{"id": 1}{"id": 2}': "not JSON",
    b'{"id": 1}\n{"id": 2}': "not JSON",
    b'{"id": 1}null': "not JSON",
    b'{"amount": NaN}': "not JSON",
    b'{"id": "\xff"}': "not JSON",
    b'{"who": {"name": "\\ud800"}}': "not JSON",
    b"null": "not an object",
    b"7": "not an object",
    b'"text"': "not an object",
    b'[{"id": 1}]': "not an object",
    b"{}": "no field of the schema: it has none at all, the schema amount, at, day, id, is_new, price, tags, who",
    b'{"ID": 1, "other": 2}': "no field of the schema: it has ID, other, the schema amount",
    b'{"id": "1"}': "Column(/id) changed from number to string",
    b'{"id": 1.5}': "1.5",
    b'{"id": 99999999999999999999}': "99999999999999999999",
    b'{"id": 1, "id": 2}': "specified twice",
    b'{"tags": "a"}': "Column(/tags)",
    b'{"who": {"name": 5}}': "Column(/who/name)",
    b'{"day": "31.1.2026"}': "31.1.2026",
    b'{"is_new": 1}': "Column(/is_new)",
}


@pytest.mark.parametrize("value", list(BAD))
def test_what_is_no_document_of_the_schema(value: bytes) -> None:
    """Alone, and among good documents, which are not affected."""
    good, (bad,) = read(JSON, value)
    assert good == []
    assert BAD[value] in bad.reason
    assert bad.value == value
    good, (bad,) = read(JSON, b'{"id": 1}', b'{"id": 2}', None, value, b'{"id": 3}')
    assert [each and each["id"] for each in good] == [1, 2, None, 3]
    assert (bad.offset, bad.value) == (3, value)


def test_many_bad_ones() -> None:
    values = [b'{"id": %d}' % number if number % 3 else b'{"id": "x"}' for number in range(1000)]
    good, bad = read(JSON, *values)
    assert [each["id"] for each in good] == [number for number in range(1000) if number % 3]
    assert [each.offset for each in bad] == [number for number in range(1000) if not number % 3]


def test_a_field_that_is_null_is_a_field_of_the_schema() -> None:
    (found,), bad = read(JSON, b'{"id": null, "other": 1}')
    assert (found["id"], bad) == (None, [])


def test_an_empty_document_does_not_hide_a_double_one() -> None:
    """Counted together, zero and two documents would make two."""
    good, bad = read(JSON, b"", b'{"id": 1}{"id": 2}')
    assert (good, len(bad)) == ([], 2)


def test_json_without_a_schema_stays_text() -> None:
    good, (bad,) = read(Decoder(value="json"), b'{"a": 1}', None, b"{", b'{"a":\n"x"}')
    assert good == ['{"a": 1}', None, '{"a":\n"x"}']
    assert (bad.offset, bad.kind) == (2, "NotJson")


def test_a_document_as_deep_as_the_sea() -> None:
    value = b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    good, (bad,) = read(JSON, value)
    assert good == []
    assert "not JSON" in bad.reason
