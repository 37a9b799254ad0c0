"""Encoding of the quorum's control records."""

from penstock.raft import control
from penstock.raft.ports import LeaderChange
from penstock.raft.replicas import Endpoint, ReplicaKey, Voter, VotersAt, VoterSet
from penstock.records.control import ControlType, read_control_key
from penstock.records.header import BatchView, batches
from penstock.records.rows import rows
from penstock.wire import codec
from penstock.wire.stored.control_records import KRaftVersionRecord, LeaderChangeMessage

ONE = Voter(ReplicaKey(1, b"1" * 16), (Endpoint("CONTROLLER", "one", 9093), Endpoint("OTHER", "one", 9094)), 0, 1)
TWO = Voter(ReplicaKey(2, b"2" * 16))


def one_batch(data: bytearray) -> BatchView:
    return next(batches(data))


def test_voter_sets_come_back_with_their_offsets() -> None:
    voters = VoterSet([ONE, TWO])
    data = control.control_batch([control.kraft_version(), control.voter_set(voters)], 5, base_offset=70)
    assert list(control.voters_in(one_batch(data))) == [VotersAt(71, voters)]


def test_a_leader_change_names_voters_and_who_was_for_it() -> None:
    change = LeaderChange(2, (ONE.key, TWO.key), (2, 1))
    record = next(rows(one_batch(control.control_batch([control.leader_change(change)], 5)), 1 << 16))
    assert read_control_key(record.key) is ControlType.LEADER_CHANGE
    message = codec.decode(LeaderChangeMessage, 1, record.value or b"")
    assert message.leader_id == 2
    assert [voter.voter_directory_id for voter in message.voters] == [b"1" * 16, b"2" * 16]
    assert [(voter.voter_id, voter.voter_directory_id) for voter in message.granting_voters] == [
        (2, b"2" * 16),
        (1, b"1" * 16),
    ]


def test_a_snapshot_begins_and_ends_with_records_of_its_own() -> None:
    records = [control.snapshot_header(77), control.kraft_version(), control.snapshot_footer()]
    batch = one_batch(control.control_batch(records, 77))
    kinds = [read_control_key(record.key) for record in rows(batch, 1 << 16)]
    assert kinds == [ControlType.SNAPSHOT_HEADER, ControlType.KRAFT_VERSION, ControlType.SNAPSHOT_FOOTER]
    assert batch.is_control
    value = list(rows(batch, 1 << 16))[1].value or b""
    assert codec.decode(KRaftVersionRecord, 0, value).k_raft_version == control.KRAFT_VERSION
    assert not list(control.voters_in(batch))
