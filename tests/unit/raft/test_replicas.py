"""Voter sets, and their history in the log."""

import pytest

from penstock.raft.replicas import ReplicaKey, Voter, VoterHistory, VotersAt, VoterSet

ONE, TWO, THREE, FOUR = (ReplicaKey(node_id, bytes([node_id]) * 16) for node_id in (1, 2, 3, 4))


def voters(*keys: ReplicaKey) -> VoterSet:
    return VoterSet(map(Voter, keys))


@pytest.mark.parametrize(("size", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_majority_is_more_than_half(size: int, majority: int) -> None:
    assert VoterSet(Voter(ReplicaKey(node_id)) for node_id in range(size)).majority == majority


def test_a_voter_with_another_directory_is_somebody_else() -> None:
    assert ONE in voters(ONE, TWO)
    assert ReplicaKey(1, b"x" * 16) not in voters(ONE, TWO)


def test_a_set_that_knows_no_directories_takes_any() -> None:
    assert ONE in voters(ReplicaKey(1))


def test_sets_are_changed_by_making_new_ones() -> None:
    before = voters(ONE, TWO)
    assert before.having(Voter(THREE)) == voters(ONE, TWO, THREE)
    assert before.without(1) == voters(TWO)
    assert before == voters(TWO, ONE)


def test_a_cut_brings_back_the_set_from_before() -> None:
    history = VoterHistory(voters(ONE))
    history.add(VotersAt(5, voters(ONE, TWO)))
    history.add(VotersAt(9, voters(ONE, TWO, THREE)))
    history.cut_end(9)
    assert history.latest == voters(ONE, TWO)
    history.cut_end(5)
    assert history.latest == voters(ONE)
    assert history.latest_offset == -1


def test_the_set_of_an_offset_is_that_of_the_records_before_it() -> None:
    history = VoterHistory(voters(ONE))
    history.add(VotersAt(5, voters(ONE, TWO)))
    assert history.at(5) == voters(ONE), "a log that ends at 5 does not hold the record at 5"
    assert history.at(6) == voters(ONE, TWO)


def test_a_later_start_keeps_the_set_that_was_in_force_there() -> None:
    history = VoterHistory(voters(ONE))
    history.add(VotersAt(5, voters(ONE, TWO)))
    history.add(VotersAt(9, voters(ONE, TWO, THREE)))
    history.cut_start(8)
    assert history.at(8) == voters(ONE, TWO)
    assert history.latest == voters(ONE, TWO, THREE)
    history.cut_start(10)
    assert (history.latest, history.latest_offset) == (voters(ONE, TWO, THREE), -1)


def test_who_is_removed_stays_a_voter_until_that_is_committed() -> None:
    history = VoterHistory(voters(ONE, TWO))
    history.add(VotersAt(5, voters(TWO)))
    assert history.names(ONE, committed_end=5)
    assert not history.names(ONE, committed_end=6)
    assert not history.names(FOUR, committed_end=5)
