"""The leader epoch history: start offsets, and answers to OffsetForLeaderEpoch (KIP-101, KIP-279)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.epochs import EpochHistory, EpochStart

LOG_END = 50


def a_history() -> EpochHistory:
    """Returns epoch 2 from offset 10, epoch 4 from 20, epoch 7 from 40; the log ends at 50."""
    return EpochHistory([EpochStart(2, 10), EpochStart(4, 20), EpochStart(7, 40)])


def test_an_epoch_begins_once() -> None:
    history = EpochHistory()
    assert history.latest == -1
    assert history.begin(3, 0)
    assert not history.begin(3, 5)
    assert not history.begin(2, 5)
    assert history.to_list() == [[3, 0]]


def test_an_epoch_that_wrote_nothing_gives_way() -> None:
    """Of several leaders elected at the same offset only the last stays in the history."""
    history = EpochHistory([EpochStart(1, 0)])
    for epoch in (2, 3, 4):
        assert history.begin(epoch, 9)
    assert history.to_list() == [[1, 0], [4, 9]]


def test_an_offset_belongs_to_the_epoch_that_covers_it() -> None:
    history = a_history()
    assert [history.epoch_at(offset) for offset in (0, 9, 10, 19, 20, 39, 40, 50, 1000)] == [
        -1,
        -1,
        2,
        2,
        4,
        4,
        7,
        7,
        7,
    ]


def test_the_latest_epoch_ends_with_the_log() -> None:
    assert a_history().end_of(7, LOG_END) == (7, 50)


def test_an_earlier_epoch_ends_where_the_next_begins() -> None:
    assert a_history().end_of(2, LOG_END) == (2, 20)
    assert a_history().end_of(4, LOG_END) == (4, 40)


def test_an_epoch_between_two_is_answered_by_the_one_before() -> None:
    """KIP-279: the leader never had the follower's epoch; the follower goes back to the last epoch both may have."""
    assert a_history().end_of(3, LOG_END) == (2, 20)
    assert a_history().end_of(5, LOG_END) == (4, 40)
    assert a_history().end_of(6, LOG_END) == (4, 40)


def test_an_epoch_before_all_ends_where_the_first_begins() -> None:
    assert a_history().end_of(0, LOG_END) == (0, 10)
    assert a_history().end_of(1, LOG_END) == (1, 10)


def test_what_cannot_be_known_is_said_to_be_unknown() -> None:
    assert a_history().end_of(8, LOG_END) == (-1, -1)
    assert a_history().end_of(-1, LOG_END) == (-1, -1)
    assert EpochHistory().end_of(0, LOG_END) == (-1, -1)


def test_cutting_the_end_forgets_what_began_there() -> None:
    history = a_history()
    history.cut_end(41)
    assert history == a_history()
    history.cut_end(40)
    assert history.to_list() == [[2, 10], [4, 20]]
    history.cut_end(5)
    assert history.to_list() == []


def test_cutting_the_start_keeps_the_epoch_that_covers_it() -> None:
    history = a_history()
    history.cut_start(5)
    assert history == a_history()
    history.cut_start(25)
    assert history.to_list() == [[4, 25], [7, 40]]
    history.cut_start(40)
    assert history.to_list() == [[7, 40]]
    history.cut_start(48)
    assert history.to_list() == [[7, 48]]
    assert history.end_of(4, LOG_END) == (4, 48)


written = st.lists(st.integers(0, 12), min_size=1, max_size=20).map(sorted)


def history_of(epochs: list[int]) -> EpochHistory:
    history = EpochHistory()
    for offset, epoch in enumerate(epochs):
        history.begin(epoch, offset)
    return history


@given(written, st.integers(0, 20), st.integers(0, 20))
def test_it_says_what_the_records_say(epochs: list[int], start: int, end: int) -> None:
    """Compared with the list of every record's epoch, with both ends cut off."""
    start, end = min(start, end, len(epochs)), min(max(start, end), len(epochs))
    history = history_of(epochs)
    history.cut_end(end)
    history.cut_start(start)
    assert [history.epoch_at(offset) for offset in range(start, end)] == epochs[start:end]
    starts = [entry.start_offset for entry in history]
    assert starts == sorted(set(starts))


@given(written, written, st.integers(0, 20))
def test_a_follower_finds_where_it_diverged(mine: list[int], theirs: list[int], common: int) -> None:
    """By querying its latest epoch repeatedly, a follower keeps exactly the common prefix."""
    prefix = sorted({min(e, 5) for e in mine[:common]} or {0}) * 2
    prefix.sort()
    leader = prefix + [e for e in mine if e > 5 and e % 2]
    follower = prefix + [e for e in theirs if e > 5 and not e % 2]
    leaders, followers = history_of(leader), history_of(follower)
    end = len(follower)
    for _ in range(20):
        if not len(followers):
            break
        epoch, epoch_end = leaders.end_of(followers.latest, len(leader))
        if epoch == -1:  # the follower's epoch is newer than all of the leader's: compare with the leader's latest
            epoch, epoch_end = leaders.latest, len(leader)
        mine_epoch, mine_end = followers.end_of(epoch, end)
        cut = min(end, epoch_end, mine_end if mine_epoch != -1 else end)
        if cut == end:
            break
        end = cut
        followers.cut_end(end)
    assert len(prefix) <= end
    assert follower[:end] == leader[:end]


@pytest.mark.parametrize("entries", [[(4, 10), (2, 20)], [(2, 20), (4, 10)], [(2, 10), (2, 20)]])
def test_a_history_that_goes_back_is_our_mistake(entries: list[tuple[int, int]]) -> None:
    with pytest.raises(AssertionError, match="goes back"):
        EpochHistory([EpochStart(*entry) for entry in entries])
