"""A broker joins real ones and gets its share, another one is emptied; `./dev campaign balance` has the figures."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from penstock.metadata.records import PartitionChangeRecord, PartitionRecord
from tests.system.balance import JOINING, LEAVES, LEAVING, Outcome, measure, unevenness
from tests.system.mortal_node import Broken
from tests.system.partition_histories import Histories

pytestmark = pytest.mark.xdist_group("cluster")

ID: Final = bytes(15) + b"\x07"


def run(directory: Path, deadline_s: float = 120.0, **settings: str) -> Outcome:
    at_once = {"reassignment.leader.interval.ms": "0"}
    named = at_once | {name.replace("_", "."): value for name, value in settings.items()}
    return asyncio.run(
        measure(
            directory,
            60,
            before_s=2.0,
            rate=50.0,
            partition_bytes=20_000,
            deadline_s=deadline_s,
            settings=named,
        )
    )


def test_a_broker_joins_and_another_is_emptied(tmp_path: Path) -> None:
    outcome = run(tmp_path)
    assert outcome.is_balanced_to(0.1), outcome
    joined = outcome.phase(JOINING)
    assert outcome.moves >= joined.held[4] + joined.held[LEAVES]
    assert outcome.arriving_most <= 10
    assert outcome.phase(LEAVING).held[LEAVES] == 0
    assert all(each.acks for each in outcome.phases)


def test_a_cluster_that_does_not_balance_itself_is_found(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="broker 4 joins: not done"):
        run(tmp_path, 5.0, auto_balance_enable="false")


def test_unevenness_is_the_share_of_whoever_is_furthest_from_even() -> None:
    assert unevenness({1: 10, 2: 10, 3: 10}) == 0.0
    assert unevenness({1: 12, 2: 10, 3: 8}) == pytest.approx(0.2)


def made(*isr: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=0, topic_id=ID, replicas=(1, 2, 3), isr=isr, removing_replicas=(), adding_replicas=(), leader=1
    )


def changed(
    isr: tuple[int, ...] | None = None, replicas: tuple[int, ...] | None = None, adding: tuple[int, ...] | None = None
) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=0, topic_id=ID, isr=isr, replicas=replicas, adding_replicas=adding)


def test_a_replica_on_its_way_need_not_be_in_sync() -> None:
    told = Histories()
    told.follow([made(1, 2, 3), changed(replicas=(4, 1, 2, 3), adding=(4,)), changed(isr=(1, 2, 3, 4))])
    told.follow([changed(isr=(4, 2, 3), replicas=(4, 2, 3), adding=())])
    assert (told.lacks, told.moves, told.arriving_most) == ([], 1, 1)


@pytest.mark.parametrize(
    "thin", [changed(isr=(1, 2)), changed(isr=(2, 3), replicas=(4, 2, 3), adding=()), changed(isr=(1, 2, 4))]
)
def test_a_replica_that_falls_out_of_sync_is_found(thin: PartitionChangeRecord) -> None:
    told = Histories()
    told.follow([made(1, 2, 3), changed(replicas=(4, 1, 2, 3), adding=(4,)), thin])
    assert len(told.lacks) == 1
