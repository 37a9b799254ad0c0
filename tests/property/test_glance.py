"""The glance at a batch's records agrees with the walk, or returns None; for ordinary records it never returns None."""

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.model.errors import CorruptBatch
from penstock.records.glance import Glance, glance
from penstock.records.rows import walk
from penstock.records.varint import encode

Drawn = tuple[int, bytes | None, bytes | None]
"""Timestamp delta, key, value."""

stamps = st.integers(0, 63)
ordinary = st.tuples(stamps, st.none() | st.binary(max_size=63), st.binary(min_size=1, max_size=300))
anything = st.tuples(
    st.integers(-200, 10_000), st.none() | st.binary(max_size=100), st.none() | st.binary(max_size=9000)
)


def packed(record: Drawn, offset_delta: int, attributes: int = 0, headers: bytes = b"\0") -> bytes:
    stamp, key, value = record
    body = bytearray([attributes])
    body += encode(stamp) + encode(offset_delta)
    for field in (key, value):
        body += encode(-1) if field is None else encode(len(field)) + field
    body += headers
    return encode(len(body)) + bytes(body)


def together(records: list[Drawn]) -> bytes:
    return b"".join(packed(record, delta) for delta, record in enumerate(records))


def walked(data: bytes, count: int) -> Glance | None:
    """The result of the plain walk; None if a glance may not return one."""
    stamps, keyless = [], 0
    try:
        for expected, (attributes, stamp, delta, key, _, _) in enumerate(walk(data, count)):
            if attributes or delta != expected or stamp < 0:
                return None
            stamps.append(stamp)
            keyless += key is None
    except CorruptBatch:
        return None
    return Glance(min(stamps), max(stamps), keyless) if stamps else None


runs = st.lists(st.tuples(ordinary, st.integers(1, 90)), min_size=1, max_size=6).map(
    lambda drawn: [record for record, times in drawn for _ in range(times)]
)


@given(st.lists(ordinary, min_size=1, max_size=150) | runs)
@example([(5, None, bytes(100))] * 700)
@example([(delta % 64, b"key", bytes(1 + delta % 200)) for delta in range(300)])
def test_ordinary_records_are_seen(records: list[Drawn]) -> None:
    data = together(records)
    seen = glance(data, len(records))
    assert seen is not None
    assert seen == walked(data, len(records))


@given(st.lists(ordinary | anything, min_size=1, max_size=20) | runs)
def test_what_is_seen_is_what_is_there(records: list[Drawn]) -> None:
    data = together(records)
    for count in (len(records) - 1, len(records), len(records) + 1):
        assert glance(data, count) in (None, walked(data, count))


@given(runs, st.data())
def test_one_wrong_byte_is_never_overlooked(records: list[Drawn], data: st.DataObject) -> None:
    """Changes one of the bytes that delimit a record, hardly ever one of its value, which may be any byte."""
    whole = bytearray(together(records))
    starts = [0]
    for delta, record in enumerate(records):
        starts.append(starts[-1] + len(packed(record, delta)))
    start = data.draw(st.sampled_from(starts[:-1]))
    position = min(start + data.draw(st.integers(-2, 14)), len(whole) - 1)
    whole[max(0, position)] ^= data.draw(st.integers(1, 255))
    cut = bytes(whole[: len(whole) - data.draw(st.sampled_from([0, 0, 0, 1, 5]))])
    assert glance(cut, len(records)) in (None, walked(cut, len(records)))


def test_headers_and_attributes_are_left_to_the_walk() -> None:
    record = (1, b"k", b"value")
    headers = encode(1) + encode(1) + b"h" + encode(1) + b"v"
    for odd in (packed(record, 0, headers=headers), packed(record, 0, attributes=1)):
        assert glance(odd, 1) is None
    assert glance(packed(record, 0), 1) == Glance(1, 1, 0)


def test_no_byte_in_the_middle_of_a_run_is_overlooked() -> None:
    records: list[Drawn] = [(3, b"key", b"v" * 70)] * 80
    whole = together(records)
    for number in (10, 70):
        start = len(together(records[:number]))
        end = len(together(records[: number + 1]))
        for position in [*range(start, end - 71), end - 1]:
            for bit in range(8):
                wrong = bytearray(whole)
                wrong[position] ^= 1 << bit
                assert glance(bytes(wrong), 80) in (None, walked(bytes(wrong), 80)), (number, position - start, bit)
