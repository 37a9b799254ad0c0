"""Records in JSON: what `consume -f json` prints, `produce -f json` reads; any other line is refused with a reason."""

import json
from pathlib import Path

import pytest

from penstock.cli.consume.formats import as_json
from penstock.cli.produce.json_records import JsonParser
from penstock.cli.produce.parsing import BadLine, Outgoing
from penstock.client.consumer.consumer import Message
from tests.unit.cli.conftest import Penstock

HOSTILE: list[bytes | None] = [
    None,
    b"",
    b"null",
    b"\xff\xfe",
    b"\x00",
    b"a\nb\r\n\tc",
    "\u2028\u0085\ufeff\U0001f600".encode(),
    b"\xed\xa0\x80",  # a surrogate, which UTF-8 does not have
    b'"\\ud800"',
    b'{"value": "x"}',
    b"aGVsbG8=",
    b"\x1b[31m",
    bytes(range(256)) * 300,
]
HEADERS: tuple[tuple[str, bytes | None], ...] = tuple(
    (name, value) for value in HOSTILE for name in ("", "same", "\udc80", "n\n\u00e9")
)


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
@pytest.mark.parametrize("key", HOSTILE, ids=repr)
def test_a_record_comes_back_as_it_was(key: bytes | None, value: bytes | None) -> None:
    for timestamp_ms, headers in ((-1, ()), (0, HEADERS), (1_700_000_000_123, HEADERS[:1])):
        line = as_json(Message("t", 3, 41, timestamp_ms, key, value, headers))
        assert line.count(b"\n") == 1, "one line for a record"
        assert JsonParser().parse(line) == Outgoing(key, value, headers, 3, timestamp_ms)


def test_text_is_readable_and_bytes_are_not_mistaken_for_it() -> None:
    row = json.loads(as_json(Message("t", 0, 0, 0, "é".encode(), b"\xff", ())))
    assert (row["key"], row["value_base64"]) == ("é", "/w==")
    assert "value" not in row


def test_what_a_line_may_leave_out() -> None:
    assert JsonParser().parse(b'{"value": "x"}') == Outgoing(None, b"x")
    assert JsonParser().parse(b'{"value": null, "key": null, "headers": null}\r') == Outgoing(None, None)
    assert JsonParser().parse(b"  ") is None


def test_partitions_are_kept_or_chosen() -> None:
    line = b'{"value": "x", "partition": 4}'
    added = (("restored", b"yes"),)
    assert JsonParser().parse(line) == Outgoing(None, b"x", (), 4)
    assert JsonParser(keeps_partitions=False).parse(line) == Outgoing(None, b"x")
    assert JsonParser(partition=1, headers=added).parse(line) == Outgoing(None, b"x", added, 1)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"x", "is not JSON .*Expecting value at column 1.*-f lines"),
        (b"\xff", "is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 10_000, "is no record in JSON"),
        (b"[1]", "no JSON object"),
        (b"{}", 'has no "value": a tombstone has "value": null'),
        (b'{"value": 1}', "neither a string nor null"),
        (b'{"value": {"id": 1}}', "neither a string nor null: write JSON in a string"),
        (b'{"value": "a", "value_base64": "YQ=="}', 'both "value" and "value_base64"'),
        (b'{"value": "a", "value": "b"}', "has 'value' twice"),
        (b'{"value": "\\ud800"}', 'half of a surrogate pair: use "value_base64"'),
        (b'{"value_base64": "?"}', "not base64"),
        (b'{"value_base64": "YQ"}', "not base64"),
        (b'{"value_base64": null}', "no string"),
        (b'{"value": "a", "val": "b"}', "a field 'val', which is none of a record"),
        (b'{"value": "a", "partition": -1}', '"partition" of -1'),
        (b'{"value": "a", "partition": 2147483648}', '"partition" of 2147483648'),
        (b'{"value": "a", "partition": true}', "no whole number"),
        (b'{"value": "a", "timestamp_ms": 1.5}', "no whole number"),
        (b'{"value": "a", "timestamp_ms": 9223372036854775807}', '"timestamp_ms" of'),
        (b'{"value": "a", "headers": {"a": "b"}}', '"headers" that are no list'),
        (b'{"value": "a", "headers": [{"value": "b"}]}', 'in header 1 no "name"'),
        (b'{"value": "a", "headers": [{"name": "a"}]}', 'in header 1 no "value"'),
        (b'{"value": "a", "headers": [{"name": "a", "value": "", "x": 1}]}', "in header 1 a field 'x'"),
    ],
    ids=lambda each: each[:40] if isinstance(each, bytes) else "",
)
def test_a_line_that_is_no_record_is_refused_with_a_reason(line: bytes, why: str) -> None:
    parser = JsonParser()
    parser.parse(b'{"value": "before"}')
    parser.parse(b"")
    with pytest.raises(BadLine, match=f"^line 3 .*{why}"):
        parser.parse(line)


def test_options_of_plain_lines_are_misuse_with_json(penstock: Penstock) -> None:
    for option in ("-kx", "-K:", "-Z"):
        result = penstock("produce", "t", "-f", "json", option)
        assert (result.code, result.out) == (2, "")
        assert "are for plain lines" in result.err


def test_help_and_the_page_name_every_field(penstock: Penstock) -> None:
    page = (Path(__file__).parents[3] / "docs" / "records.md").read_text()
    for text in (penstock("produce", "--help").out, page):
        for field in ("value", "key", "headers", "name", "timestamp_ms", "partition", "value_base64", "key_base64"):
            assert f'"{field}"' in text
        assert "--choose-partitions" in text
