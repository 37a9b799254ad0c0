"""A stream of bytes becomes frames, whatever pieces it comes in, and a promise of bytes is not paid in memory."""

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import FrameTooLarge
from penstock.wire.frames import FrameReader


def feed(reader: FrameReader, data: bytes, piece: int) -> list[bytes]:
    """Receives `data` in pieces of at most `piece` bytes."""
    found: list[bytes] = []
    position = 0
    while position < len(data):
        room = reader.writable()
        assert len(room) > 0
        count = min(len(room), piece, len(data) - position)
        room[:count] = data[position : position + count]
        reader.received(count)
        position += count
        found += [bytes(f) for f in reader.frames()]
    return found


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(p)) + p for p in payloads)


@given(st.lists(st.binary(max_size=300), max_size=6), st.integers(1, 200), st.integers(5, 64), st.integers(1, 64))
def test_frames_come_out_as_they_went_in(payloads: list[bytes], piece: int, first: int, growth: int) -> None:
    reader = FrameReader(300, first_bytes=first, growth_bytes=growth)
    assert feed(reader, framed(*payloads), piece) == payloads
    assert reader.held_bytes == 0


def test_a_large_frame_arrives_whole() -> None:
    payload = bytes(range(256)) * 4096
    assert feed(FrameReader(2**20), framed(payload), 65536) == [payload]


def test_a_frame_that_was_handed_out_is_never_overwritten() -> None:
    reader = FrameReader(100, first_bytes=64)
    room = reader.writable()
    data = framed(b"first") + framed(b"second")[:6]
    room[: len(data)] = data
    reader.received(len(data))
    (first,) = reader.frames()
    assert feed(reader, framed(b"second")[6:] + framed(b"x" * 50), 3) == [b"second", b"x" * 50]
    assert bytes(first) == b"first"


@pytest.mark.parametrize("length", [-1, 101, 2**31 - 1, -(2**31)])
def test_a_frame_outside_the_limit_is_refused_before_it_arrives(length: int) -> None:
    reader = FrameReader(100)
    with pytest.raises(FrameTooLarge):
        feed(reader, struct.pack(">i", length), 4)


def test_whole_frames_before_a_refused_one_are_still_served() -> None:
    reader = FrameReader(100)
    assert feed(reader, framed(b"good") + struct.pack(">i", 101), 1000) == [b"good"]
    with pytest.raises(FrameTooLarge):
        reader.frames()


def test_declaring_much_and_sending_little_costs_little() -> None:
    tracemalloc.start()
    reader = FrameReader(2**30)
    feed(reader, struct.pack(">i", 2**30) + b"x" * 1000, 500)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 128 * 1024
    assert reader.held_bytes <= 2 * 1004 + 64 * 1024


def test_an_idle_reader_holds_nothing() -> None:
    reader = FrameReader(100)
    reader.writable()
    reader.received(0)
    assert reader.frames() == []
    assert reader.held_bytes == 0
