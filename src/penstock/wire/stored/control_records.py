"""Keys and values of control records: transaction markers, and those of the metadata log."""

from collections.abc import Sequence

from penstock.wire.declare import Message, Struct, since
from penstock.wire.types import ZERO_UUID, Int16, Int32, Int64, UInt16, Uuid


class ControlRecordTypeSchema(Message, versions="0"):
    type: Int16


class EndTxnMarker(Message, versions="0"):
    coordinator_epoch: Int32


class Voter(Struct):
    voter_id: Int32
    voter_directory_id: Uuid = since(1, default=ZERO_UUID)


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    version: Int16
    leader_id: Int32
    voters: Sequence[Voter]
    granting_voters: Sequence[Voter]


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    version: Int16
    last_contained_log_timestamp: Int64


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    version: Int16


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    version: Int16
    k_raft_version: Int16


class Endpoint(Struct):
    name: str
    host: str
    port: UInt16


class KRaftVersionFeature(Struct):
    min_supported_version: Int16
    max_supported_version: Int16


class VotersRecordVoter(Struct):
    voter_id: Int32
    voter_directory_id: Uuid
    endpoints: Sequence[Endpoint]
    k_raft_version_feature: KRaftVersionFeature


class VotersRecord(Message, versions="0", flexible="0+"):
    version: Int16
    voters: Sequence[VotersRecordVoter]
