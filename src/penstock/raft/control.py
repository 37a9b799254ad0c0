"""Encodes the quorum's control records: leader changes, voter sets, and the first and last records of snapshots.

They use Kafka's encoding: the key holds the type, the value is the declared message. Other readers skip them; the
quorum reads voter sets from them.
"""

from collections.abc import Iterator
from typing import Final

from penstock.raft.ports import LeaderChange
from penstock.raft.replicas import Endpoint, ReplicaKey, Voter, VotersAt, VoterSet
from penstock.records.builder import BatchBuilder
from penstock.records.control import CONTROL_BATCH_BYTES_MAX, ControlType, read_control_key, write_control_key
from penstock.records.header import BatchView
from penstock.records.rows import rows
from penstock.wire import codec
from penstock.wire.declare import Message
from penstock.wire.stored import control_records as stored

KRAFT_VERSION: Final = 1
"""Voter sets are records and hold directory ids (KIP-853)."""
_LEADER_CHANGE_VERSION: Final = 1


def leader_change(change: LeaderChange) -> tuple[ControlType, bytes]:
    """The first record of an epoch."""
    keys = {key.node_id: key for key in change.voters}
    message = stored.LeaderChangeMessage(
        version=_LEADER_CHANGE_VERSION,
        leader_id=change.leader_id,
        voters=[stored.Voter(voter_id=key.node_id, voter_directory_id=key.directory_id) for key in change.voters],
        granting_voters=[
            stored.Voter(voter_id=node_id, voter_directory_id=keys.get(node_id, ReplicaKey(node_id)).directory_id)
            for node_id in change.granting
        ],
    )
    return ControlType.LEADER_CHANGE, _encode(message, _LEADER_CHANGE_VERSION)


def kraft_version() -> tuple[ControlType, bytes]:
    """The record that sets the format of voter sets; it precedes each of them."""
    return ControlType.KRAFT_VERSION, _encode(stored.KRaftVersionRecord(version=0, k_raft_version=KRAFT_VERSION))


def voter_set(voters: VoterSet) -> tuple[ControlType, bytes]:
    """The record that puts a voter set into force."""
    message = stored.VotersRecord(
        version=0,
        voters=[
            stored.VotersRecordVoter(
                voter_id=voter.key.node_id,
                voter_directory_id=voter.key.directory_id,
                endpoints=[stored.Endpoint(name=e.name, host=e.host, port=e.port) for e in voter.endpoints],
                k_raft_version_feature=stored.KRaftVersionFeature(
                    min_supported_version=voter.kraft_version_min, max_supported_version=voter.kraft_version_max
                ),
            )
            for voter in voters.by_id.values()
        ],
    )
    return ControlType.KRAFT_VOTERS, _encode(message)


def snapshot_header(timestamp_ms: int) -> tuple[ControlType, bytes]:
    """The first record of a snapshot, with the timestamp of the last log record that it contains."""
    message = stored.SnapshotHeaderRecord(version=0, last_contained_log_timestamp=timestamp_ms)
    return ControlType.SNAPSHOT_HEADER, _encode(message)


def snapshot_footer() -> tuple[ControlType, bytes]:
    """The last record of a snapshot; without it the snapshot is incomplete."""
    return ControlType.SNAPSHOT_FOOTER, _encode(stored.SnapshotFooterRecord(version=0))


def control_batch(records: list[tuple[ControlType, bytes]], timestamp_ms: int, base_offset: int = 0) -> bytearray:
    """A batch of control records."""
    builder = BatchBuilder(base_offset=base_offset, is_control=True, bytes_max=CONTROL_BATCH_BYTES_MAX)
    for kind, value in records:
        builder.append(write_control_key(kind), value, timestamp_ms=timestamp_ms)
    return builder.build()


def voters_in(batch: BatchView) -> Iterator[VotersAt]:
    """The voter sets in a batch, with their offsets."""
    if not batch.is_control:
        return
    for record in rows(batch, CONTROL_BATCH_BYTES_MAX):
        if read_control_key(record.key) is ControlType.KRAFT_VOTERS:
            yield VotersAt(record.offset, _read_voters(record.value or b""))


def _read_voters(value: bytes) -> VoterSet:
    message = codec.decode(stored.VotersRecord, 0, value)
    return VoterSet(
        Voter(
            ReplicaKey(voter.voter_id, voter.voter_directory_id),
            tuple(Endpoint(each.name, each.host, each.port) for each in voter.endpoints),
            voter.k_raft_version_feature.min_supported_version,
            voter.k_raft_version_feature.max_supported_version,
        )
        for voter in message.voters
    )


def _encode(message: Message, version: int = 0) -> bytes:
    return bytes(codec.encode(message, version))
