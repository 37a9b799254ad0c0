"""The quorum's log, snapshots and state on a disk; the log is compared with a model."""

from random import Random

import pytest

from penstock.host.lossy import LossyDisk
from penstock.host.memory import MemoryDisk
from penstock.log import truncation, upkeep
from penstock.log.checked import Damaged
from penstock.log.directory import DataDirectory, open_directory
from penstock.model.errors import CorruptBatch, TornBatch
from penstock.raft.ports import LeaderChange, SnapshotId
from penstock.raft.replicas import ReplicaKey, Voter, VoterSet
from penstock.raft.roles import QuorumState
from penstock.records.builder import BatchBuilder
from penstock.server.quorum.metadata_log import open_metadata_log
from penstock.server.quorum.quorum_log import QuorumLog, check_fetched
from penstock.server.quorum.quorum_snapshots import SNAPSHOTS, SnapshotShelf, open_shelf, path_of
from penstock.server.quorum.quorum_state import QUORUM_STATE, load_state, store_state
from tests.simulation.log.histories import ZeroEntropy, drive
from tests.simulation.raft_core.disk import SimulatedLog

VOTERS = VoterSet([Voter(ReplicaKey(1, b"1" * 16)), Voter(ReplicaKey(2, b"2" * 16))])


class StoppedClock:
    def wall_ms(self) -> int:
        return 1_000

    def monotonic_ms(self) -> int:
        return 1_000


def a_batch(value: bytes = b"value") -> bytearray:
    builder = BatchBuilder()
    builder.append(None, value, timestamp_ms=1_000)
    return builder.build()


class Machine:
    """A data directory with the metadata log, on a disk that can lose power."""

    def __init__(self, disk: LossyDisk | None = None) -> None:
        self.disk = disk or LossyDisk(MemoryDisk(), Random(1))
        self.directory: DataDirectory = drive(
            open_directory(self.disk, cluster_id="c", node_id=1, entropy=ZeroEntropy(), now_ms=0, ledger_bytes=4096)
        )
        self.shelf: SnapshotShelf = drive(open_shelf(self.disk))
        self.log = QuorumLog(drive(open_metadata_log(self.directory)), self.shelf, StoppedClock())

    def cut(self, end_offset: int) -> None:
        drive(self.directory.truncate(self.log.log, end_offset, now_ms=0))

    def take_snapshot(self, end_offset: int) -> SnapshotId:
        snapshot = SnapshotId(end_offset, self.log.epoch_before(end_offset))
        drive(self.shelf.write(snapshot, VOTERS, [bytes(a_batch())], 1_000))
        drive(self.shelf.finish(snapshot))
        return snapshot

    def trim(self, start_offset: int) -> None:
        self.log.log.advance_high_watermark(start_offset)
        drive(upkeep.delete_before(self.log.log, self.disk, start_offset))
        self.shelf.drop_before(start_offset)

    def begin_at(self, snapshot: SnapshotId) -> None:
        drive(truncation.restart_at(self.log.log, self.disk, self.directory.ledger, snapshot.end_offset))
        self.shelf.drop_before(snapshot.end_offset)

    def lose_power(self) -> "Machine":
        return Machine(self.disk.power_cut())


@pytest.mark.parametrize("seed", range(30))
def test_the_log_agrees_with_a_plain_twin(seed: int) -> None:
    """Random appends, truncations, trims and snapshots: log and model agree on offsets and epochs."""
    random = Random(seed)
    machine, twin = Machine(), SimulatedLog()
    log = machine.log
    epoch = 1
    for _ in range(60):
        action = random.random()
        if action < 0.6:
            epoch += random.choice((0, 0, 0, 1, 2))
            assert log.append(epoch, a_batch(), 0) == twin.append(epoch, 1, 0)
        elif action < 0.75:
            end = random.randint(twin.start_offset, twin.end_offset)
            machine.cut(end)
            twin.cut(end)
            epoch += 1
        elif action < 0.9 and twin.end_offset > twin.start_offset:
            start = random.randint(twin.start_offset + 1, twin.end_offset)
            machine.take_snapshot(start)
            machine.trim(start)
            twin.trim(start)
        elif action > 0.95:
            epoch += 1
            snapshot = SnapshotId(twin.end_offset + random.randint(0, 3) + 1, epoch)
            drive(machine.shelf.write(snapshot, VOTERS, [], 1_000))
            drive(machine.shelf.finish(snapshot))
            machine.begin_at(snapshot)
            twin.begin_at(snapshot)
        assert (log.start_offset, log.end_offset) == (twin.start_offset, twin.end_offset)
        assert log.last_epoch == twin.last_epoch
        for offset in range(twin.start_offset, twin.end_offset + 1):
            assert log.epoch_before(offset) == twin.epoch_before(offset)
        for asked in range(epoch + 2):
            assert log.end_of_epoch(asked) == twin.end_of_epoch(asked)


def test_what_one_log_reads_another_appends() -> None:
    leader, follower = Machine(), Machine()
    leader.log.append_control(3, [LeaderChange(1, (), ()), VOTERS], 0)
    for number in range(20):
        leader.log.append(3 + number // 10, a_batch(b"x" * 100 * number), 0)
    while follower.log.end_offset < leader.log.end_offset:
        data = leader.log.read(follower.log.end_offset, 500)
        assert data, "at least one batch, however large"
        for found in follower.log.append_fetched(data, 0):
            assert found.voters == VOTERS
    assert follower.log.read(0, 1 << 20) == leader.log.read(0, 1 << 20)
    assert follower.log.last_epoch == 4
    assert [found.offset for found in follower.log.voter_sets()] == [2], "behind the leader and the version"
    assert leader.log.read(leader.log.end_offset, 500) == b""


def test_what_was_damaged_on_its_way_is_noticed_before_it_is_written() -> None:
    leader = Machine()
    leader.log.append(3, a_batch(), 0)
    leader.log.append(3, a_batch(), 0)
    data = leader.log.read(0, 1 << 20)
    check_fetched(data)
    check_fetched(b"")
    damaged = bytearray(data)
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch):
        check_fetched(bytes(damaged))
    with pytest.raises(TornBatch):
        check_fetched(data[:-1])


def test_a_synced_end_survives_the_power() -> None:
    machine = Machine()
    machine.log.append(1, a_batch(), 0)
    drive(machine.directory.commit())
    machine.log.append(1, a_batch(), 0)
    assert (machine.log.synced_end, machine.log.end_offset) == (1, 2)
    assert machine.lose_power().log.end_offset == 1


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_a_snapshot_travels_in_pieces() -> None:
    one, other = Machine(), Machine()
    one.log.append(5, a_batch(), 0)
    snapshot = one.take_snapshot(1)
    assert snapshot == SnapshotId(1, 5)
    position = 0
    while True:
        chunk = one.shelf.read(snapshot, position, 50)
        assert chunk is not None
        position = other.shelf.receive(snapshot, position, chunk.data)
        if position >= chunk.size_bytes:
            break
    assert other.shelf.ids == []
    drive(other.shelf.finish(snapshot))
    assert other.shelf.ids == [snapshot]
    assert other.shelf.voters_of(snapshot) == VOTERS
    assert other.lose_power().shelf.voters_of(snapshot) == VOTERS


def test_what_was_received_in_part_is_gone_after_a_crash() -> None:
    machine = Machine()
    machine.shelf.receive(SnapshotId(7, 2), 0, b"a piece")
    again = machine.lose_power()
    assert again.shelf.ids == []
    assert again.disk.list(SNAPSHOTS) == []


def test_a_new_beginning_forgets_what_was_received_before() -> None:
    machine = Machine()
    machine.shelf.receive(SnapshotId(7, 2), 0, b"a long first piece")
    assert machine.shelf.receive(SnapshotId(7, 2), 0, b"short") == 5


def test_a_snapshot_that_is_not_there() -> None:
    assert Machine().shelf.read(SnapshotId(7, 2), 0, 10) is None


def test_old_snapshots_are_dropped() -> None:
    machine = Machine()
    for _ in range(3):
        machine.log.append(1, a_batch(), 0)
        machine.take_snapshot(machine.log.end_offset)
    machine.shelf.drop_before(2)
    assert [each.end_offset for each in machine.shelf.ids] == [2, 3]
    assert machine.shelf.read(SnapshotId(1, 1), 0, 10) is None
    drive(machine.disk.sync_dir(SNAPSHOTS))
    assert [each.end_offset for each in machine.lose_power().shelf.ids] == [2, 3]


def test_a_damaged_snapshot_is_refused() -> None:
    machine = Machine()
    machine.log.append(1, a_batch(), 0)
    snapshot = machine.take_snapshot(1)
    machine.disk.flip_bit(path_of(snapshot), 90, 1)
    with pytest.raises(CorruptBatch, match="does not begin with a voter set"):
        drive(open_shelf(machine.disk))


# --- the state --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [QuorumState(5, 3, None), QuorumState(6, -1, ReplicaKey(2, b"2" * 16))])
def test_the_state_survives_the_power(state: QuorumState) -> None:
    machine = Machine()
    assert load_state(machine.disk) == QuorumState()
    drive(store_state(machine.disk, state))
    assert load_state(machine.lose_power().disk) == state


def test_a_damaged_state_is_noticed_and_survived_once() -> None:
    disk = Machine().disk
    state = QuorumState(5, 3, None)
    drive(store_state(disk, state))
    disk.flip_bit(QUORUM_STATE, 10, 1)
    assert load_state(disk) == state
    disk.flip_bit(QUORUM_STATE, disk.open(QUORUM_STATE).size() - 10, 1)
    with pytest.raises(Damaged):
        load_state(disk)
