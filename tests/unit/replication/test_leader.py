"""A leader's high watermark, refused fetches, and ISR proposals."""

import pytest

from penstock.metadata.image import Broker, Partition
from penstock.metadata.partition_change import RECOVERING
from penstock.model.errors import ErrorCode
from penstock.replication.leader import Verdict
from tests.simulation.replication_core.disk import ModelLog
from tests.unit.replication.builders import LAG_MS, Asked, a_leader, a_log, neighbours, partition

FENCED = Verdict(ErrorCode.FENCED_LEADER_EPOCH)
OUT_OF_RANGE = Verdict(ErrorCode.OFFSET_OUT_OF_RANGE)


# --- comparing logs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "verdict"),
    [
        (Asked(0), Verdict()),
        (Asked(3, 0), Verdict()),
        (Asked(4, 2), Verdict()),
        (Asked(4, 0), Verdict(diverging=(0, 3))),
        (Asked(4, 1), Verdict(diverging=(0, 3))),
        (Asked(2, 1), Verdict(diverging=(0, 3))),
        (Asked(6, 2), Verdict(diverging=(2, 5))),
        (Asked(6), OUT_OF_RANGE),
    ],
)
def test_a_fetch_is_compared_by_epochs(asked: Asked, verdict: Verdict) -> None:
    leader = a_leader(a_log(0, 0, 0, 2, 2), partition(1, 2, epoch=3))
    assert leader.examine(asked._replace(leader_epoch=3)) == verdict


def test_an_epoch_that_was_begun_counts_though_nothing_was_written_in_it() -> None:
    """R03: a follower may have records of epoch 3, in which this broker did not lead."""
    leader = a_leader(a_log(0, 2), partition(1, 2, epoch=4))
    assert leader.examine(Asked(4, 3, 4)) == Verdict(diverging=(2, 2))


def test_fetches_of_other_epochs_are_refused() -> None:
    leader = a_leader(a_log(0), partition(1, 2, epoch=3))
    assert leader.on_fetch(2, 20, Asked(1, 0, 2), 0) == FENCED
    assert leader.on_fetch(2, 20, Asked(1, 0, 4), 0) == Verdict(ErrorCode.UNKNOWN_LEADER_EPOCH)
    assert leader.progress[2].end_offset == -1


def test_before_its_start_a_log_cannot_tell_who_wrote_what() -> None:
    log = a_log(0, 1, 1, 2)
    log.high_watermark = 4
    log.trim(3)
    leader = a_leader(log, partition(1, 2, epoch=3))
    assert leader.examine(Asked(3, 0, 3)) == OUT_OF_RANGE
    assert leader.examine(Asked(3, 1, 3)) == OUT_OF_RANGE
    assert leader.examine(Asked(2, 1, 3)) == OUT_OF_RANGE
    assert leader.examine(Asked(4, 2, 3)) == Verdict()


def test_a_log_that_retention_has_emptied_still_knows_its_last_epoch() -> None:
    log = a_log(0, 1)
    log.high_watermark = 2
    log.trim(2)
    assert a_leader(log, partition(1, 2, epoch=1)).examine(Asked(2, 1, 1)) == Verdict()


def test_strangers_and_former_lives_are_refused() -> None:
    leader = a_leader(a_log(0), partition(1, 2))
    assert leader.on_fetch(4, 40, Asked(1, 0), 0) == Verdict(ErrorCode.UNKNOWN_LEADER_EPOCH)
    assert leader.on_fetch(2, 19, Asked(1, 0), 0) == Verdict(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert leader.progress[2].end_offset == -1


@pytest.mark.parametrize("made_up", [21, 2**62, 2**63 - 1])
def test_a_broker_epoch_above_the_images_is_not_counted_and_shuts_nobody_out(made_up: int) -> None:
    log = a_log(0, 0)
    leader = a_leader(log, partition(1, 2))
    assert leader.on_fetch(2, made_up, Asked(0), 0) == Verdict(ErrorCode.UNKNOWN_LEADER_EPOCH)
    assert leader.progress[2].end_offset == -1
    assert leader.on_fetch(2, 20, Asked(2, 0), 1).fits, "the broker itself is served and counted"
    assert leader.advance(1)
    assert log.high_watermark == 2


def test_a_follower_that_registered_anew_counts_as_soon_as_the_image_has_its_epoch() -> None:
    around = neighbours(1, 2, 3)
    leader = a_leader(a_log(0, 0), partition(1, 2), around=around)
    assert leader.on_fetch(2, 25, Asked(2, 0), 0) == Verdict(ErrorCode.UNKNOWN_LEADER_EPOCH)
    around.brokers = {**around.brokers, 2: Broker(2, 25, b"", ())}
    assert leader.on_fetch(2, 25, Asked(2, 0), 1).fits
    assert leader.on_fetch(2, 20, Asked(2, 0), 1) == Verdict(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert leader.progress[2].end_offset == 2


def test_a_broker_that_is_not_registered_is_not_counted() -> None:
    leader = a_leader(a_log(0), partition(1, 2), around=neighbours(1, 3))
    assert leader.on_fetch(2, -1, Asked(1, 0), 0) == Verdict(ErrorCode.UNKNOWN_LEADER_EPOCH)
    assert leader.progress[2].end_offset == -1


# --- the low watermark ------------------------------------------------------------------------------------------------


def a_log_from(start_offset: int, *epochs: int) -> ModelLog:
    log = a_log(*epochs)
    log.high_watermark = log.written_end
    log.trim(start_offset)
    return log


def test_the_low_watermark_is_the_lowest_start_that_was_reported() -> None:
    leader = a_leader(a_log_from(2, 0, 0, 0), partition(1, 2, 3))
    assert leader.low_watermark() == -1
    leader.on_fetch(2, 20, Asked(3, 0, log_start=2), 0)
    assert leader.low_watermark() == -1
    leader.on_fetch(3, 30, Asked(3, 0, log_start=1), 0)
    assert leader.low_watermark() == 1
    leader.on_fetch(3, 30, Asked(3, 0, log_start=3), 0)
    assert leader.low_watermark() == 2


def test_a_late_fetch_does_not_take_a_start_back_but_another_life_does() -> None:
    around = neighbours(1, 2)
    leader = a_leader(a_log_from(2, 0, 0, 0), partition(1, 2, replicas=(1, 2)), around=around)
    leader.on_fetch(2, 20, Asked(3, 0, log_start=2), 0)
    leader.on_fetch(2, 20, Asked(3, 0, log_start=0), 0)
    assert leader.low_watermark() == 2
    around.brokers = {**around.brokers, 2: Broker(2, 25, b"", ())}
    leader.on_fetch(2, 25, Asked(3, 0, log_start=0), 0)
    assert leader.low_watermark() == 0


def test_a_start_that_a_former_life_reported_does_not_count() -> None:
    around = neighbours(1, 2)
    leader = a_leader(a_log_from(2, 0, 0, 0), partition(1, 2, replicas=(1, 2)), around=around)
    leader.on_fetch(2, 20, Asked(3, 0, log_start=2), 0)
    around.brokers = {**around.brokers, 2: Broker(2, 21, b"2" * 16, ())}
    assert leader.low_watermark() == -1


@pytest.mark.parametrize(
    ("part", "is_fenced", "low"),
    [
        (partition(1, 2), False, 0),  # live, though not in the ISR
        (partition(1, 2), True, 2),
        (partition(1, 2, 3), True, 0),
        (partition(1, 2)._replace(eligible_leader_replicas=(3,)), True, 0),
        (partition(1, 2)._replace(adding_replicas=(3,)), False, 0),
    ],
)
def test_live_replicas_and_eligible_leaders_count(part: Partition, is_fenced: bool, low: int) -> None:
    around = neighbours(1, 2, 3)
    around.brokers = {**around.brokers, 3: Broker(3, 30, b"3" * 16, (), is_fenced=is_fenced)}
    leader = a_leader(a_log_from(2, 0, 0, 0), part, around=around)
    leader.on_fetch(2, 20, Asked(3, 0, log_start=2), 0)
    leader.on_fetch(3, 30, Asked(3, 0, log_start=0), 0)
    assert leader.low_watermark() == low


def test_a_replica_that_is_being_added_counts_once_it_fetches() -> None:
    leader = a_leader(a_log_from(2, 0, 0, 0), partition(1, 2)._replace(adding_replicas=(3,)))
    leader.on_fetch(2, 20, Asked(3, 0, log_start=2), 0)
    assert leader.low_watermark() == 2
    leader.on_fetch(3, 30, Asked(2, 0, log_start=0), 0)
    assert leader.low_watermark() == 0


def test_a_replica_joins_only_with_what_earlier_leaders_may_have_acknowledged() -> None:
    leader = a_leader(a_log_from(2, 0, 0, 0), partition(1, 2))
    leader.on_fetch(3, 30, Asked(3, 0, log_start=1), 0)
    assert not leader.grow(0)
    leader.on_fetch(3, 30, Asked(3, 0, log_start=2), 0)
    assert leader.grow(0)


def test_a_replica_joins_with_less_than_retention_has_deleted_here_but_not_with_less_than_was_acknowledged() -> None:
    log = a_log(0, 0, 0)
    around = neighbours(1, 2, 3)
    around.brokers = {**around.brokers, 3: Broker(3, 30, b"3" * 16, (), is_fenced=True)}
    leader = a_leader(log, partition(1, 2), around=around)
    leader.on_fetch(2, 20, Asked(3, 0, log_start=0), 0)
    leader.advance(0)
    log.high_watermark = 3
    log.trim(2)
    leader.on_fetch(3, 30, Asked(3, 0, log_start=0), 0)
    around.brokers = neighbours(1, 2, 3).brokers
    assert leader.grow(0)
    assert leader.take_back(leader.proposal)  # type: ignore[arg-type]
    around.brokers = {**around.brokers, 3: Broker(3, 30, b"3" * 16, (), is_fenced=True)}
    leader.on_fetch(2, 20, Asked(3, 0, log_start=2), 0)
    assert leader.settle_start() == 2
    around.brokers = neighbours(1, 2, 3).brokers
    assert not leader.grow(0)


def test_what_was_deleted_while_there_was_one_replica_counts_when_others_come() -> None:
    log = a_log(0, 0, 0)
    leader = a_leader(log, partition(1, replicas=(1,)))
    leader.advance(0)
    log.trim(2)
    leader.learn(partition(1, partition_epoch=1, replicas=(1, 2)), 1)
    leader.on_fetch(2, 20, Asked(3, 0, log_start=0), 0)
    assert not leader.grow(0)
    leader.on_fetch(2, 20, Asked(3, 0, log_start=2), 0)
    assert leader.grow(0)


# --- the high watermark -----------------------------------------------------------------------------------------------


def test_what_everybody_in_sync_has_is_committed() -> None:
    log = a_log(0, 0, 0)
    leader = a_leader(log, partition(1, 2, 3))
    assert not leader.advance(0)
    leader.on_fetch(2, 20, Asked(3, 0), 0)
    assert not leader.advance(0)
    leader.on_fetch(3, 30, Asked(2, 0), 0)
    assert leader.advance(0)
    assert log.high_watermark == 2


def test_the_leaders_own_records_count_when_they_are_durable() -> None:
    log = a_log(0, 0, waits_for_sync=True)
    log.synced_end = 1
    leader = a_leader(log, partition(1))
    assert leader.advance(0)
    assert log.high_watermark == 1


def test_a_diverging_fetch_is_no_progress() -> None:
    log = a_log(0, 2)
    leader = a_leader(log, partition(1, 2, epoch=2))
    assert leader.on_fetch(2, 20, Asked(2, 1, 2), 0).diverging == (0, 1)
    assert not leader.advance(0)


def test_a_fetch_that_comes_late_takes_no_progress_back_but_another_life_does() -> None:
    around = neighbours(1, 2, 3)
    leader = a_leader(a_log(0, 0, 0), partition(1, 2, epoch=3), around=around)
    leader.on_fetch(2, 20, Asked(3, 0, 3), 0)
    leader.on_fetch(2, 20, Asked(2, 0, 3), 1)
    assert leader.progress[2].end_offset == 3
    around.brokers = {**around.brokers, 2: Broker(2, 21, b"", ())}
    leader.on_fetch(2, 21, Asked(2, 0, 3), 2)
    assert leader.progress[2].end_offset == 2


def test_with_too_few_in_sync_nothing_is_committed() -> None:
    """KIP-966: otherwise a former ISR member could not lead without losing the record."""
    log = a_log(0, 0)
    leader = a_leader(log, partition(1, 2, 3), in_sync_min=2)
    leader.learn(partition(1, partition_epoch=1), 2)
    assert not leader.has_enough_in_sync
    assert not leader.advance(0)
    leader.learn(partition(1, partition_epoch=1), 1)
    assert leader.advance(0)


def test_no_topic_asks_for_more_replicas_than_it_has() -> None:
    log = a_log(0)
    assert a_leader(log, partition(1, replicas=(1,)), in_sync_min=2).advance(0)


def test_one_that_keeps_up_is_waited_for() -> None:
    """Otherwise under load it would always be slightly behind the high watermark, and never join the ISR."""
    log = a_log(0)
    leader = a_leader(log, partition(1))
    leader.on_fetch(2, 20, Asked(1, 0), 0)
    log.append(0, 5)
    leader.appended(1)
    assert leader.advance(0)
    assert log.high_watermark == 1
    assert not leader.advance(LAG_MS)
    assert leader.advance(LAG_MS + 1)


def test_one_that_cannot_write_is_not_waited_for() -> None:
    around = neighbours(1, 2, 3)
    log = a_log(0)
    leader = a_leader(log, partition(1), around=around)
    leader.on_fetch(2, 20, Asked(1, 0), 0)
    around.brokers = {**around.brokers, 2: Broker(2, 20, b"", (), can_write=False)}
    log.append(0, 5)
    leader.appended(1)
    assert leader.advance(0)
    assert log.high_watermark == 2


def test_one_with_much_to_catch_up_on_is_not_waited_for() -> None:
    """Neither after an election, nor after a restart if it kept up before."""
    around = neighbours(1, 2, 3)
    log = a_log(0, 0, 0)
    leader = a_leader(log, partition(1), around=around)
    leader.on_fetch(3, 30, Asked(1, 0), 0)
    assert leader.advance(0)
    leader.on_fetch(2, 20, Asked(3, 0), 10)
    around.brokers = {**around.brokers, 2: Broker(2, 21, b"", ())}
    leader.on_fetch(2, 21, Asked(1, 0), 20)
    log.append(0, 5)
    assert leader.advance(20)


def test_before_its_epoch_is_committed_a_leader_is_not_settled() -> None:
    leader = a_leader(a_log(0, 0), partition(1, 2))
    assert not leader.is_settled
    leader.on_fetch(2, 20, Asked(2, 0), 0)
    leader.advance(0)
    assert leader.is_settled


# --- ISR changes ------------------------------------------------------------------------------------------------------


def test_a_follower_joins_when_it_has_all_of_before_the_epoch() -> None:
    log = a_log(0, 0)
    leader = a_leader(log, partition(1))
    leader.on_fetch(2, 20, Asked(1, 0), 0)
    assert not leader.grow(0)
    leader.on_fetch(2, 20, Asked(2, 0), 0)
    assert leader.grow(0)
    assert leader.proposal is not None
    assert leader.proposal.isr == ((1, 10), (2, 20))
    assert (leader.isr, leader.maximal_isr) == ((1,), (1, 2))


def test_while_a_proposal_is_pending_everybody_in_it_counts() -> None:
    log = a_log(0)
    leader = a_leader(log, partition(1))
    leader.on_fetch(2, 20, Asked(1, 0), 0)
    leader.grow(0)
    log.append(0, 5)
    leader.advance(10 * LAG_MS)
    assert log.high_watermark == 1
    leader.learn(partition(1, partition_epoch=1), 1)  # another change was committed
    assert leader.proposal is None
    assert leader.advance(10 * LAG_MS)


@pytest.mark.parametrize("trouble", ["fenced", "leaving", "full", "another life", "unknown"])
def test_nobody_is_proposed_who_may_not_join(trouble: str) -> None:
    around = neighbours(1, 2)
    broker = around.brokers[2]
    changed = {
        "fenced": type(broker)(2, 20, b"", (), is_fenced=True),
        "leaving": type(broker)(2, 20, b"", (), is_shutting_down=True),
        "full": type(broker)(2, 20, b"", (), can_write=False),
        "another life": type(broker)(2, 21, b"", ()),
    }
    leader = a_leader(a_log(0), partition(1), around=around)
    leader.on_fetch(2, 20, Asked(1, 0), 0)
    own = around.brokers[1]
    around.brokers = {1: own, 2: changed[trouble]} if trouble in changed else {1: own}
    assert not leader.grow(0)
    around.brokers = {1: own, 2: broker}
    assert leader.grow(0)


def test_who_is_late_leaves_and_comes_back_when_it_has_caught_up() -> None:
    log = a_log(0)
    leader = a_leader(log, partition(1, 2))
    leader.on_fetch(2, 20, Asked(1, 0), 100)
    assert not leader.shrink(100 + 10 * LAG_MS)  # it has all records
    log.append(0, 5)
    leader.appended(1)
    assert not leader.shrink(100 + LAG_MS)
    assert leader.shrink(101 + LAG_MS)
    assert leader.proposal is not None
    assert leader.proposal.isr == ((1, 10),)
    leader.learn(partition(1, partition_epoch=1), 1)
    assert not leader.grow(101 + LAG_MS)
    leader.on_fetch(2, 20, Asked(2, 0), 200 + LAG_MS)
    assert leader.grow(200 + LAG_MS)


def test_one_that_fetches_other_partitions_was_here_then_too() -> None:
    """An incremental fetch session leaves out partitions without changes."""
    around = neighbours(1, 2)
    log = a_log(0)
    leader = a_leader(log, partition(1, 2), around=around)
    leader.on_fetch(2, 20, Asked(1, 0), 100)
    around.heard_ms[2] = 5_000
    log.append(0, 5)
    leader.appended(1)
    assert not leader.shrink(5_000 + LAG_MS)
    assert leader.shrink(5_001 + LAG_MS)


def test_a_slow_follower_that_was_at_the_end_with_its_last_fetch_is_not_late() -> None:
    log = a_log(0)
    leader = a_leader(log, partition(1, 2))
    leader.on_fetch(2, 20, Asked(0), 900)
    log.append(0, 5)
    leader.on_fetch(2, 20, Asked(1, 0), 1_800)  # all records as of 900
    assert not leader.shrink(900 + LAG_MS)
    assert leader.shrink(901 + LAG_MS)


def test_only_its_own_refusal_takes_a_proposal_back() -> None:
    leader = a_leader(a_log(0), partition(1))
    leader.on_fetch(2, 20, Asked(1, 0), 0)
    leader.grow(0)
    first = leader.proposal
    assert first is not None
    assert leader.take_back(first)
    leader.grow(0)
    assert not leader.take_back(first)
    assert leader.maximal_isr == (1, 2)


def test_after_an_unclean_election_the_leader_says_that_it_has_seen_to_it() -> None:
    leader = a_leader(a_log(0), partition(1)._replace(leader_recovery_state=RECOVERING))
    assert leader.grow(0)
    assert leader.proposal is not None
    assert (leader.proposal.isr, leader.proposal.leader_recovery_state) == (((1, 10),), 0)


# --- reading nearby ---------------------------------------------------------------------------------------------------


def test_consumers_read_from_the_replica_in_their_rack() -> None:
    """KIP-392."""
    leader = a_leader(a_log(0, 0), partition(1, 2))
    leader.on_fetch(2, 20, Asked(1, 0), 0)
    leader.on_fetch(3, 30, Asked(2, 0), 0)
    assert leader.preferred_reader("rack 2", 1) == 2
    assert leader.preferred_reader("rack 2", 2) is None  # it has not fetched that offset yet
    assert leader.preferred_reader("rack 3", 1) is None  # not in sync
    assert leader.preferred_reader("rack 1", 1) is None
    assert leader.preferred_reader("", 1) is None
    leader.on_fetch(2, 20, Asked(2, 0, log_start=1), 0)
    assert leader.preferred_reader("rack 2", 1) == 2
    assert leader.preferred_reader("rack 2", 0) is None  # it has deleted that offset
