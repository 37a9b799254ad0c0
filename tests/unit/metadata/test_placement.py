from collections import Counter

import pytest

from harness.metadata_world import Dice
from penstock.metadata.commands import Refusal
from penstock.metadata.image import Broker
from penstock.metadata.placement import assign, assign_all, place, place_all
from penstock.metadata.view import REPLICAS_PER_PIECE, finished
from penstock.model.errors import ErrorCode


def broker(
    broker_id: int, rack: str | None = None, *, is_fenced: bool = False, is_shutting_down: bool = False
) -> Broker:
    return Broker(broker_id, 0, bytes(16), (), rack=rack, is_fenced=is_fenced, is_shutting_down=is_shutting_down)


def cluster(*brokers: Broker) -> dict[int, Broker]:
    return {each.broker_id: each for each in brokers}


def test_leaders_and_replicas_are_spread_evenly() -> None:
    placed = [*place(cluster(*(broker(n) for n in range(10))), 1000, 3, Dice())]
    assert Counter(replicas[0] for replicas in placed) == dict.fromkeys(range(10), 100)
    assert Counter(each for replicas in placed for each in replicas) == dict.fromkeys(range(10), 300)
    assert all(len(set(replicas)) == 3 for replicas in placed)


def test_whoever_follows_a_lost_leader_is_not_always_the_same() -> None:
    placed = [*place(cluster(*(broker(n) for n in range(10))), 1000, 2, Dice())]
    assert len({replicas[1] for replicas in placed if replicas[0] == 0}) == 9


def test_replicas_lie_in_different_racks() -> None:
    brokers = cluster(*(broker(n, rack="abc"[n % 3]) for n in range(9)))
    for replicas in place(brokers, 500, 3, Dice()):
        assert sorted(brokers[each].rack or "" for each in replicas) == ["a", "b", "c"]


def test_a_fenced_broker_neither_leads_nor_is_in_sync() -> None:
    brokers = cluster(broker(1), broker(2, is_fenced=True), broker(3, is_shutting_down=True))
    for partition in finished(place_all(20, 3, brokers, Dice())):
        if partition.replicas[0] == 1:
            assert partition.leader == 1
        assert partition.isr == (1,)
        assert sorted(partition.replicas) == [1, 2, 3]


@pytest.mark.parametrize(
    ("brokers", "replication_factor", "words"),
    [
        ((), 1, "All brokers are currently fenced."),
        ((broker(1, is_fenced=True),), 1, "All brokers are currently fenced."),
        ((broker(1),), 2, "The target replication factor of 2 cannot be reached because only 1 broker(s)"),
        ((broker(1, is_shutting_down=True),), 1, "All brokers are currently fenced or in controlled shutdown."),
    ],
)
def test_what_cannot_be_placed(brokers: tuple[Broker, ...], replication_factor: int, words: str) -> None:
    with pytest.raises(Refusal, match=words.replace("(", r"\(").replace(")", r"\)")) as refused:
        finished(place_all(1, replication_factor, cluster(*brokers), Dice()))
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_partitions_by_hand_need_somebody_who_can_lead() -> None:
    brokers = cluster(broker(1, is_fenced=True), broker(2))
    assert assign(0, (1, 2), brokers, None).leader == 2
    with pytest.raises(Refusal, match="partition 5 are fenced or in controlled shutdown"):
        assign(5, (1,), brokers, None)
    with pytest.raises(Refusal, match=r"with 1 replica\(s\), but this is not consistent"):
        assign(5, (2,), brokers, 2)


def test_racks_of_different_sizes_are_kept_apart_all_the_same() -> None:
    """KIP-36: a partition's replicas are in different racks as far as racks suffice; small racks then hold more."""
    brokers = cluster(*(broker(n, rack="aaab"[n % 4]) for n in range(8)), broker(8, rack="c"))
    for factor, different in ((2, 2), (3, 3), (5, 3)):
        for replicas in place(brokers, 300, factor, Dice()):
            assert len(set(replicas)) == factor
            assert len({brokers[each].rack for each in replicas}) == different
    leaders = Counter(replicas[0] for replicas in place(brokers, 900, 3, Dice()))
    assert leaders == dict.fromkeys(range(9), 100), "but leaders are even"


def test_who_has_no_rack_is_in_one_of_those_without() -> None:
    brokers = cluster(broker(1), broker(2), broker(3, rack="a"))
    for replicas in place(brokers, 30, 2, Dice()):
        assert 3 in replicas


def test_placement_and_assignment_are_made_in_pieces() -> None:
    brokers = cluster(*(broker(n) for n in range(4)))
    pieces = sum(1 for _ in place_all(9_000, 3, brokers, Dice()))
    assert pieces >= 27_000 // REPLICAS_PER_PIECE - 1
    given = ((index, (0, 1, 2)) for index in range(9_000))
    assert sum(1 for _ in assign_all(given, brokers, None)) >= 27_000 // REPLICAS_PER_PIECE - 1


def test_more_replicas_than_nodes_apply_at_once_are_refused() -> None:
    brokers = cluster(*(broker(n) for n in range(5)))
    assert len(finished(place_all(8_000, 5, brokers, Dice()))) == 8_000
    with pytest.raises(Refusal, match="add the others with further requests") as refused:
        finished(place_all(8_001, 5, brokers, Dice()))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    given = ((index, (0, 1, 2, 3, 4)) for index in range(8_001))
    with pytest.raises(Refusal, match="add the others with further requests"):
        finished(assign_all(given, brokers, None))
