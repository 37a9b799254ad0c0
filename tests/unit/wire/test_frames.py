"""A byte stream becomes frames, whatever its pieces; a large declared length does not allocate memory."""

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import FrameTooLarge
from penstock.wire.frames import FrameReader, has_no_views
from tests.apart import apart


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


@given(
    st.lists(st.binary(max_size=300), max_size=6),
    st.integers(1, 200),
    st.integers(5, 64),
    st.integers(1, 64),
    st.integers(50, 400),
)
def test_frames_come_out_as_they_went_in(
    payloads: list[bytes], piece: int, first: int, growth: int, large: int
) -> None:
    reader = FrameReader(300, first_bytes=first, growth_bytes=growth, large_bytes=large)
    assert feed(reader, framed(*payloads), piece) == payloads
    assert reader.held_bytes == 0


@pytest.mark.parametrize("size_bytes", [2**20, 10 * 2**20 + 7])
def test_a_large_frame_arrives_whole(size_bytes: int) -> None:
    payload = (bytes(range(256)) * (size_bytes // 256 + 1))[:size_bytes]
    assert feed(FrameReader(size_bytes), framed(payload), 300_000) == [payload]


def test_a_reader_says_beforehand_by_how_much_it_will_grow() -> None:
    reader = FrameReader(2**30)
    feed(reader, struct.pack(">i", 2**30), 4)
    for _ in range(100):
        held, growth = reader.held_bytes, reader.growth_bytes
        room = reader.writable()
        assert reader.held_bytes == held + growth
        reader.received(len(room))
    assert reader.held_bytes > 10 * 2**20


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
    peak_bytes, held_bytes = apart(after_a_large_promise)
    assert peak_bytes < 128 * 1024
    assert held_bytes <= 2 * 1004 + 64 * 1024


def after_a_large_promise() -> tuple[int, int]:
    """Returns the peak memory, and the bytes that the reader reports to hold."""
    tracemalloc.start()
    reader = FrameReader(2**30)
    feed(reader, struct.pack(">i", 2**30) + b"x" * 1000, 500)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak_bytes, reader.held_bytes


def test_an_idle_reader_holds_nothing() -> None:
    reader = FrameReader(100)
    reader.writable()
    reader.received(0)
    assert reader.frames() == []
    assert reader.held_bytes == 0


@given(
    st.lists(st.binary(max_size=300), max_size=8),
    st.integers(1, 400),
    st.integers(5, 64),
    st.lists(st.booleans()),
    st.integers(50, 400),
)
def test_frames_come_out_of_a_lent_buffer_as_they_went_in(
    payloads: list[bytes], piece: int, first: int, waits: list[bool], large: int
) -> None:
    """Borrowed and own buffers alternate; frames that are still referenced are not overwritten."""
    reader = FrameReader(300, first_bytes=first, growth_bytes=16, large_bytes=large)
    lent, kept = bytearray(128), []
    data, position = framed(*payloads), 0
    while position < len(data):
        if reader.is_lent and reader.is_used_up():
            lent = reader.give_back()
            lent = lent if has_no_views(lent) else bytearray(128)
        if reader.can_borrow(len(lent)):
            reader.borrow(lent)
        room = reader.writable()
        count = min(len(room), piece, len(data) - position)
        room[:count] = data[position : position + count]
        reader.received(count)
        position += count
        kept += reader.frames()
        if waits and waits.pop() and reader.is_lent:
            lent = reader.give_back()
            lent = lent if has_no_views(lent) else bytearray(128)
            assert reader.held_bytes <= 2 * reader.unparsed_bytes + max(first, 16)
    if reader.is_lent:
        reader.give_back()
    assert [bytes(frame) for frame in kept] == payloads
    assert reader.held_bytes == 0


def test_a_lent_buffer_is_used_again_once_nobody_looks_at_its_frames() -> None:
    reader = FrameReader(100)
    lent = bytearray(64)
    reader.borrow(lent)
    for number in range(10):
        data = framed(bytes([number]) * 50)
        assert not reader.is_used_up()
        reader.writable()[: len(data)] = data
        reader.received(len(data))
        assert [bytes(frame) for frame in reader.frames()] == [bytes([number]) * 50]
    assert reader.give_back() is lent


def test_a_view_keeps_a_buffer_from_being_used_again() -> None:
    buffer = bytearray(10)
    view = memoryview(buffer)[2:3]
    assert not has_no_views(buffer)
    view.release()
    assert has_no_views(buffer)
    assert len(buffer) == 10
