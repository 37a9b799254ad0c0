"""The sparse index: the active and the sealed form give the same answers, and all damage is detected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.host.memory import MemoryDisk
from penstock.log.checked import Damaged
from penstock.log.index import AbortedTransaction, ActiveIndex, MappedIndex, SealedIndex

U32_MAX = 2**32 - 1

steps = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000), st.integers(0, 3)), max_size=30)
aborts = st.lists(st.builds(AbortedTransaction, *[st.integers(-(2**63), 2**63 - 1)] * 4), max_size=3)


def an_index(moves: list[tuple[int, int, int]], aborted: list[AbortedTransaction] | None = None) -> ActiveIndex:
    """Builds an index whose entries are these steps apart."""
    index, delta, position, timestamp_ms = ActiveIndex(), 0, 0, 1_000
    for delta_step, position_step, time_step in moves:
        delta, position, timestamp_ms = delta + delta_step, position + position_step, timestamp_ms + time_step
        index.add(delta, position, timestamp_ms)
    index.aborted = list(aborted or [])
    return index


def answers(index: ActiveIndex | SealedIndex, limits: list[int]) -> list[tuple[int, int, int]]:
    return [
        (index.position_for_offset(limit), index.position_for_time(limit), index.position_before(limit))
        for limit in limits
    ]


def test_an_empty_index_sends_everybody_to_the_start() -> None:
    for index in (ActiveIndex(), SealedIndex(ActiveIndex().sealed(), "x")):
        assert answers(index, [0, 5, 10**12]) == [(0, 0, 0)] * 3


def test_a_look_up_by_offset_starts_at_the_last_entry_not_behind_it() -> None:
    index = an_index([(10, 100, 0), (10, 100, 0)])
    assert [index.position_for_offset(delta) for delta in (0, 9, 10, 19, 20, 99)] == [0, 0, 100, 100, 200, 200]


def test_a_look_up_by_time_starts_before_the_first_that_may_have_it() -> None:
    """With equal timestamps, the first matching record may lie anywhere after the last entry with a lower one."""
    index = ActiveIndex()
    for number, timestamp_ms in enumerate([10, 20, 20, 30], 1):
        index.add(number, number * 100, timestamp_ms)
    assert [index.position_for_time(time) for time in (5, 10, 11, 20, 21, 30, 31)] == [0, 0, 100, 100, 300, 300, 400]


@given(steps, aborts, st.lists(st.integers(0, 40_000), max_size=20))
def test_sealed_and_active_are_twins(
    moves: list[tuple[int, int, int]], aborted: list[AbortedTransaction], limits: list[int]
) -> None:
    active = an_index(moves, aborted)
    edges = [edge + more for edge in [*active.deltas, *active.positions, *active.timestamps] for more in (-1, 0, 1)]
    sealed = SealedIndex(active.sealed(), "x")
    again = ActiveIndex.load(sealed)
    assert answers(sealed, limits + edges) == answers(active, limits + edges) == answers(again, limits + edges)
    assert list(sealed.aborted) == active.aborted == again.aborted
    assert again.sealed() == active.sealed()


@given(steps, st.integers(0, 30_000))
def test_a_cut_index_is_one_that_never_had_more(moves: list[tuple[int, int, int]], position: int) -> None:
    whole = an_index(moves)
    kept = [move for move, at in zip(moves, whole.positions, strict=True) if at < position]
    whole.cut(position)
    assert whole.sealed() == an_index(kept).sealed()


def test_the_largest_numbers_fit() -> None:
    index = ActiveIndex()
    index.add(2**31 - 1, U32_MAX, 2**63 - 1)
    sealed = SealedIndex(index.sealed(), "x")
    assert sealed.entry(0) == (2**31 - 1, U32_MAX, 2**63 - 1)


def test_every_flipped_bit_is_noticed() -> None:
    data = an_index([(1, 61, 5), (2, 70, 0), (3, 99, 1)], [AbortedTransaction(7, 1, 5, 0)]).sealed()
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            with pytest.raises(Damaged, match=r"x\.index: "):
                SealedIndex(flipped, "x.index")


def test_every_cut_is_noticed() -> None:
    data = an_index([(1, 61, 5), (2, 70, 0)], [AbortedTransaction(7, 1, 5, 0)]).sealed()
    for size in range(len(data)):
        with pytest.raises(Damaged):
            SealedIndex(data[:size], "x.index")
    with pytest.raises(Damaged):
        SealedIndex(data + bytes(16), "x.index")


def test_a_map_that_is_damaged_is_given_back() -> None:
    disk = MemoryDisk()
    file = disk.open("x.index", create=True)
    file.write(0, b"nonsense" * 10)
    with pytest.raises(Damaged):
        MappedIndex(file)
    file.truncate(0)
    file.write(0, an_index([(4, 44, 0)]).sealed())
    index = MappedIndex(file)
    assert index.position_for_offset(5) == 44
    index.close()
    file.close()
    assert disk.open_count == 0
