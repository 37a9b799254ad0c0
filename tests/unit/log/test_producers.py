"""Producer state of a log: duplicates, sequence gaps, epochs, transactions, expiry."""

import json
from random import Random

import pytest

from penstock.log.index import AbortedTransaction
from penstock.log.producers import BATCHES_REMEMBERED, ProducerSnapshot, ProducerStates, SeenBatch
from penstock.model.errors import (
    InvalidTransactionState,
    OutOfOrderSequence,
    StaleCoordinatorEpoch,
    StaleProducerEpoch,
)
from penstock.records.control import ControlType
from penstock.records.header import BatchView, patch
from tests.unit.log.place import a_marker, essence, from_producer

ME = 7
SEQUENCE_MAX = 2**31 - 1


class Partition:
    """The producer state of one log, and its next offset."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end = 0

    def send(
        self, sequence: int, *, producer_id: int = ME, epoch: int = 0, count: int = 1, in_transaction: bool = False
    ) -> SeenBatch | None:
        """Checks a client's batch, and applies it unless it is a duplicate."""
        data = from_producer(producer_id, sequence, epoch=epoch, count=count, is_transactional=in_transaction)
        seen = self.states.check(BatchView(data))
        if seen is None:
            self.take(data)
        return seen

    def end_transaction(
        self, kind: ControlType, *, producer_id: int = ME, epoch: int = 0, coordinator_epoch: int = 0
    ) -> AbortedTransaction | None:
        """Checks and applies a coordinator's marker."""
        data = a_marker(kind, producer_id, epoch=epoch, coordinator_epoch=coordinator_epoch)
        self.states.check_marker(BatchView(data))
        return self.take(data)

    def take(self, data: bytearray, now_ms: int = 0) -> AbortedTransaction | None:
        patch(data, self.end, 0)
        batch = BatchView(data)
        stable = self.states.first_unstable(self.end)
        self.end = batch.last_offset + 1
        return self.states.apply(batch, now_ms, batch.base_offset if stable is None else stable)


# --- sequences ----------------------------------------------------------------------------------------------------


def test_a_repeat_of_each_of_the_last_five_is_recognised() -> None:
    partition = Partition()
    for number in range(8):
        assert partition.send(number * 3, count=3) is None
    for number in range(8 - BATCHES_REMEMBERED, 8):
        seen = partition.send(number * 3, count=3)
        assert seen is not None
        assert (seen.base_offset, seen.last_offset) == (number * 3, number * 3 + 2)
    assert partition.end == 24


def test_the_sixth_is_forgotten_and_not_appended_again() -> None:
    partition = Partition()
    for number in range(6):
        partition.send(number)
    with pytest.raises(OutOfOrderSequence, match="sent sequence 0, expected 6"):
        partition.send(0)


def test_half_a_repeat_is_none() -> None:
    """A batch with the same first sequence and another length is not a duplicate."""
    partition = Partition()
    partition.send(0, count=3)
    with pytest.raises(OutOfOrderSequence):
        partition.send(0, count=2)
    with pytest.raises(OutOfOrderSequence):
        partition.send(1, count=2)


@pytest.mark.parametrize("sequence", [0, 2, 4, 100, SEQUENCE_MAX])
def test_a_gap_is_refused(sequence: int) -> None:
    partition = Partition()
    partition.send(1, count=2)
    with pytest.raises(OutOfOrderSequence, match=f"sent sequence {sequence}, expected 3"):
        partition.send(sequence)


def test_an_unknown_producer_may_begin_anywhere() -> None:
    """KIP-360: the producer's state may have expired while it was idle."""
    partition = Partition()
    assert partition.send(57) is None
    assert partition.send(58) is None
    with pytest.raises(OutOfOrderSequence):
        partition.send(60)


def test_sequences_wrap() -> None:
    partition = Partition()
    partition.send(SEQUENCE_MAX - 1, count=2)
    assert partition.send(0) is None
    partition = Partition()
    partition.send(SEQUENCE_MAX, count=3)  # the wrap lies inside the batch
    with pytest.raises(OutOfOrderSequence, match="expected 2"):
        partition.send(3)
    assert partition.send(2) is None
    assert partition.send(SEQUENCE_MAX, count=3) is not None


def test_producers_do_not_disturb_each_other() -> None:
    partition = Partition()
    for number in range(10):
        assert partition.send(number, producer_id=1) is None
        assert partition.send(number, producer_id=2) is None
    assert len(partition.states) == 2


# --- epochs -------------------------------------------------------------------------------------------------------


def test_an_older_epoch_is_fenced() -> None:
    partition = Partition()
    partition.send(0, epoch=3)
    with pytest.raises(StaleProducerEpoch, match="wrote with epoch 2, but 3 is in use"):
        partition.send(1, epoch=2)


def test_a_new_epoch_begins_at_zero() -> None:
    partition = Partition()
    partition.send(0, count=5)
    with pytest.raises(OutOfOrderSequence, match="starts epoch 1 with sequence 5 instead of 0"):
        partition.send(5, epoch=1)
    assert partition.send(0, epoch=1) is None
    assert partition.send(1, epoch=1) is None


def test_a_new_epoch_knows_no_repeats_of_the_old() -> None:
    partition = Partition()
    partition.send(0)
    partition.send(0, epoch=1)
    seen = partition.send(0, epoch=1)
    assert seen is not None
    assert seen.base_offset == 1


def test_an_epoch_that_came_with_a_marker_begins_at_zero_too() -> None:
    """A coordinator fences with a marker of a newer epoch; of two batches then in flight the second may come first."""
    partition = Partition()
    partition.send(0, in_transaction=True)
    partition.end_transaction(ControlType.ABORT, epoch=1)
    partition.states = ProducerStates.from_list(json.loads(json.dumps(partition.states.snapshot().to_list())))
    with pytest.raises(OutOfOrderSequence, match="sent sequence 1, expected 0"):
        partition.send(1, epoch=1, in_transaction=True)
    assert partition.send(0, epoch=1, in_transaction=True) is None
    assert partition.send(1, epoch=1, in_transaction=True) is None


def test_whoever_is_known_only_by_a_marker_may_begin_anywhere() -> None:
    """The producer's batches may have been deleted and its state rebuilt from the remaining records."""
    partition = Partition()
    partition.end_transaction(ControlType.COMMIT)
    assert partition.send(57, in_transaction=True) is None
    with pytest.raises(OutOfOrderSequence):
        partition.send(59, in_transaction=True)


# --- transactions -------------------------------------------------------------------------------------------------


def test_a_transaction_is_unstable_until_its_marker_is_replicated() -> None:
    partition = Partition()
    partition.send(0, producer_id=1)
    partition.send(0, in_transaction=True)  # offset 1
    partition.send(1, in_transaction=True)  # offset 2
    assert partition.states.first_unstable(3) == 1
    partition.end_transaction(ControlType.COMMIT)  # offset 3
    assert partition.states.first_unstable(3) == 1
    assert partition.states.first_unstable(4) is None


def test_the_first_of_several_transactions_counts() -> None:
    partition = Partition()
    partition.send(0, producer_id=1, in_transaction=True)  # offset 0
    partition.send(0, producer_id=2, in_transaction=True)  # offset 1
    partition.send(0, producer_id=3, in_transaction=True)  # offset 2
    partition.end_transaction(ControlType.COMMIT, producer_id=2)  # offset 3
    assert partition.states.first_unstable(9) == 0
    partition.end_transaction(ControlType.COMMIT, producer_id=1)  # offset 4
    assert partition.states.first_unstable(4) == 0
    assert partition.states.first_unstable(5) == 2
    partition.send(1, producer_id=1, in_transaction=True)  # offset 5: a new transaction of an old producer is latest
    assert partition.states.first_unstable(9) == 2
    partition.end_transaction(ControlType.ABORT, producer_id=3)
    assert partition.states.first_unstable(9) == 5


def test_an_abort_says_what_it_took_back_and_a_commit_says_nothing() -> None:
    partition = Partition()
    partition.send(0, in_transaction=True)
    partition.send(1, in_transaction=True)
    assert partition.end_transaction(ControlType.ABORT) == AbortedTransaction(ME, 0, 2, 0)
    partition.send(2, in_transaction=True)
    assert partition.end_transaction(ControlType.COMMIT) is None


def test_a_marker_without_a_transaction_ends_nothing() -> None:
    """The partition was added to the transaction, but nothing was sent to it."""
    partition = Partition()
    assert partition.end_transaction(ControlType.ABORT) is None
    assert partition.states.first_unstable(9) is None


@pytest.mark.parametrize(("epoch", "sequence"), [(0, 1), (1, 0)])
def test_a_plain_batch_inside_a_transaction_is_refused(epoch: int, sequence: int) -> None:
    partition = Partition()
    partition.send(0, in_transaction=True)
    with pytest.raises(InvalidTransactionState):
        partition.send(sequence, epoch=epoch)


def test_a_marker_of_an_old_coordinator_is_refused() -> None:
    partition = Partition()
    partition.send(0, in_transaction=True)
    partition.end_transaction(ControlType.ABORT, coordinator_epoch=4)
    partition.send(1, in_transaction=True)
    with pytest.raises(StaleCoordinatorEpoch, match="coordinator epoch 3, but 4 has written"):
        partition.end_transaction(ControlType.COMMIT, coordinator_epoch=3)
    partition.end_transaction(ControlType.COMMIT, coordinator_epoch=4)


def test_a_marker_of_an_old_producer_epoch_is_refused() -> None:
    partition = Partition()
    partition.send(0, epoch=2, in_transaction=True)
    with pytest.raises(StaleProducerEpoch):
        partition.end_transaction(ControlType.COMMIT, epoch=1)
    assert partition.states.first_unstable(1) == 0


# --- expiry -------------------------------------------------------------------------------------------------------


def test_idleness_counts_from_the_append() -> None:
    """R24: records with old timestamps do not make their producer expire."""
    partition = Partition()
    partition.take(from_producer(1, 0, timestamp_ms=5), now_ms=10_000)
    partition.take(from_producer(2, 0, timestamp_ms=10**12), now_ms=9_000)
    partition.states.expire(10_500, 1_000)
    assert list(partition.states.producers) == [1]
    partition.states.expire(11_000, 1_000)
    assert list(partition.states.producers) == [1]
    partition.states.expire(11_001, 1_000)
    assert len(partition.states) == 0


def test_whoever_has_a_transaction_open_is_never_forgotten() -> None:
    partition = Partition()
    partition.send(0, in_transaction=True)
    partition.states.expire(10**15, 1)
    assert partition.states.first_unstable(1) == 0
    partition.end_transaction(ControlType.ABORT)
    partition.states.expire(10**15, 1)
    assert len(partition.states) == 0


# --- snapshots ----------------------------------------------------------------------------------------------------


def test_a_snapshot_restores_everything() -> None:
    partition = Partition()
    for number in range(7):
        partition.send(number, producer_id=1)
    partition.send(0, producer_id=3, in_transaction=True)  # offset 7
    partition.send(0, producer_id=2, epoch=4, in_transaction=True)  # offset 8
    partition.end_transaction(ControlType.ABORT, producer_id=3, coordinator_epoch=6)  # offset 9, not replicated yet
    snapshot = partition.states.snapshot()
    assert snapshot.has_content
    rows = snapshot.to_list()
    again = ProducerStates.from_list(json.loads(json.dumps(rows)))
    assert essence(again) == essence(partition.states)
    assert json.dumps(again.snapshot().to_list()) == json.dumps(rows)
    for high_watermark, expected in ((9, 7), (10, 8)):
        assert again.first_unstable(high_watermark) == expected
    partition.states = again
    assert partition.send(6, producer_id=1) is not None
    assert partition.end_transaction(ControlType.ABORT, producer_id=2, epoch=4) == AbortedTransaction(2, 8, 10, 8)


def test_an_empty_snapshot_says_nothing() -> None:
    snapshot = ProducerStates().snapshot()
    assert not snapshot.has_content
    assert len(ProducerStates.from_list(snapshot.to_list())) == 0


def test_a_snapshot_stays_as_it_was_taken() -> None:
    """Later changes do not alter a snapshot, nor do changes between two snapshots."""
    random = Random(5)
    partition = Partition()
    sequences: dict[int, int] = {}
    kept: list[tuple[ProducerSnapshot, str]] = []
    for now_ms in range(600):
        producer_id = random.randrange(6)
        draw = random.random()
        if draw < 0.05:
            snapshot = partition.states.snapshot()
            kept.append((snapshot, json.dumps(snapshot.to_list())))
        elif draw < 0.1:
            partition.states.expire(now_ms, 20)
            sequences = {each: last for each, last in sequences.items() if each in partition.states.producers}
        elif draw < 0.3:
            kind = random.choice([ControlType.ABORT, ControlType.COMMIT])
            partition.take(a_marker(kind, producer_id), now_ms)
        else:
            sequence = sequences.get(producer_id, 0)
            is_transactional = producer_id % 2 == 0
            partition.take(from_producer(producer_id, sequence, is_transactional=is_transactional), now_ms)
            sequences[producer_id] = sequence + 1
    assert len(kept) > 15
    assert [json.dumps(snapshot.to_list()) for snapshot, _ in kept] == [then for _, then in kept]


def test_a_snapshot_shares_what_has_not_changed() -> None:
    partition = Partition()
    for producer_id in range(50):
        partition.send(0, producer_id=producer_id)
    first = partition.states.snapshot()
    partition.send(1, producer_id=3)
    partition.send(2, producer_id=3)
    second = partition.states.snapshot()
    changed = [each for each in range(50) if first.producers[each] is not second.producers[each]]
    assert changed == [3]
    assert partition.states.producers[4] is first.producers[4]
