"""The records of the metadata log, as Kafka 4.3 writes them (KRaft). Replayed in order, they yield the cluster state.

Declarations only. `penstock.metadata.frames` encodes and decodes them, `penstock.metadata.draft` applies them to the
image.
"""

from collections.abc import Sequence

from penstock.metadata.declare import MetadataRecord
from penstock.wire.declare import Struct, since, tagged
from penstock.wire.types import Float64, Int8, Int16, Int32, Int64, UInt16, Uuid


class BrokerEndpoint(Struct):
    name: str
    host: str
    port: UInt16
    security_protocol: Int16


class BrokerFeature(Struct):
    name: str
    min_supported_version: Int16
    max_supported_version: Int16


class RegisterBrokerRecord(MetadataRecord, key=0, versions="0-4", flexible="0+"):
    broker_id: Int32
    is_migrating_zk_broker: bool = since(2, default=False)
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: Sequence[BrokerEndpoint]
    features: Sequence[BrokerFeature]
    rack: str | None
    fenced: bool = True
    in_controlled_shutdown: bool = since(1, default=False)
    log_dirs: Sequence[Uuid] = tagged(0, since=3, default=())
    cordoned_log_dirs: Sequence[Uuid] | None = tagged(1, since=4, default=None)


class UnregisterBrokerRecord(MetadataRecord, key=1, versions="0", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64


class TopicRecord(MetadataRecord, key=2, versions="0", flexible="0+"):
    name: str
    topic_id: Uuid


class PartitionRecord(MetadataRecord, key=3, versions="0-2", flexible="0+"):
    partition_id: Int32 = -1
    topic_id: Uuid
    replicas: Sequence[Int32]
    isr: Sequence[Int32]
    removing_replicas: Sequence[Int32]
    adding_replicas: Sequence[Int32]
    leader: Int32 = -1
    leader_recovery_state: Int8 = tagged(0, since=0, default=0)
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Sequence[Uuid] = since(1, default=())
    eligible_leader_replicas: Sequence[Int32] | None = tagged(1, since=2, default=None)
    last_known_elr: Sequence[Int32] | None = tagged(2, since=2, default=None)


class ConfigRecord(MetadataRecord, key=4, versions="0", flexible="0+"):
    resource_type: Int8
    resource_name: str
    name: str
    value: str | None


class PartitionChangeRecord(MetadataRecord, key=5, versions="0-2", flexible="0+"):
    partition_id: Int32 = -1
    topic_id: Uuid
    isr: Sequence[Int32] | None = tagged(0, since=0, default=None)
    leader: Int32 = tagged(1, since=0, default=-2)
    replicas: Sequence[Int32] | None = tagged(2, since=0, default=None)
    removing_replicas: Sequence[Int32] | None = tagged(3, since=0, default=None)
    adding_replicas: Sequence[Int32] | None = tagged(4, since=0, default=None)
    leader_recovery_state: Int8 = tagged(5, since=0, default=-1)
    directories: Sequence[Uuid] | None = tagged(8, since=1, default=None)
    eligible_leader_replicas: Sequence[Int32] | None = tagged(6, since=2, default=None)
    last_known_elr: Sequence[Int32] | None = tagged(7, since=2, default=None)


class FenceBrokerRecord(MetadataRecord, key=7, versions="0", flexible="0+"):
    id: Int32
    epoch: Int64


class UnfenceBrokerRecord(MetadataRecord, key=8, versions="0", flexible="0+"):
    id: Int32
    epoch: Int64


class RemoveTopicRecord(MetadataRecord, key=9, versions="0", flexible="0+"):
    topic_id: Uuid


class DelegationTokenRecord(MetadataRecord, key=10, versions="0", flexible="0+"):
    owner: str
    requester: str
    renewers: Sequence[str]
    issue_timestamp: Int64
    max_timestamp: Int64
    expiration_timestamp: Int64
    token_id: str


class UserScramCredentialRecord(MetadataRecord, key=11, versions="0", flexible="0+"):
    name: str
    mechanism: Int8
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: Int32


class FeatureLevelRecord(MetadataRecord, key=12, versions="0", flexible="0+"):
    name: str
    feature_level: Int16


class EntityData(Struct):
    entity_type: str
    entity_name: str | None


class ClientQuotaRecord(MetadataRecord, key=14, versions="0", flexible="0+"):
    entity: Sequence[EntityData]
    key: str
    value: Float64
    remove: bool


class ProducerIdsRecord(MetadataRecord, key=15, versions="0", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64 = -1
    next_producer_id: Int64


class BrokerRegistrationChangeRecord(MetadataRecord, key=17, versions="0-3", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64
    fenced: Int8 = tagged(0, since=0, default=0)
    in_controlled_shutdown: Int8 = tagged(1, since=1, default=0)
    log_dirs: Sequence[Uuid] = tagged(2, since=2, default=())
    cordoned_log_dirs: Sequence[Uuid] | None = tagged(3, since=3, default=None)


class AccessControlEntryRecord(MetadataRecord, key=18, versions="0", flexible="0+"):
    id: Uuid
    resource_type: Int8
    resource_name: str
    pattern_type: Int8
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


class RemoveAccessControlEntryRecord(MetadataRecord, key=19, versions="0", flexible="0+"):
    id: Uuid


class NoOpRecord(MetadataRecord, key=20, versions="0", flexible="0+"):
    pass


class ZkMigrationStateRecord(MetadataRecord, key=21, versions="0", flexible="0+"):
    zk_migration_state: Int8


class RemoveUserScramCredentialRecord(MetadataRecord, key=22, versions="0", flexible="0+"):
    name: str
    mechanism: Int8


class BeginTransactionRecord(MetadataRecord, key=23, versions="0", flexible="0+"):
    name: str | None = tagged(0, since=0, default=None)


class EndTransactionRecord(MetadataRecord, key=24, versions="0", flexible="0+"):
    pass


class AbortTransactionRecord(MetadataRecord, key=25, versions="0", flexible="0+"):
    reason: str | None = tagged(0, since=0, default=None)


class RemoveDelegationTokenRecord(MetadataRecord, key=26, versions="0", flexible="0+"):
    token_id: str


class ControllerEndpoint(Struct):
    name: str
    host: str
    port: UInt16
    security_protocol: Int16


class ControllerFeature(Struct):
    name: str
    min_supported_version: Int16
    max_supported_version: Int16


class RegisterControllerRecord(MetadataRecord, key=27, versions="0", flexible="0+"):
    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: bool
    end_points: Sequence[ControllerEndpoint]
    features: Sequence[ControllerFeature]


class ClearElrRecord(MetadataRecord, key=28, versions="0", flexible="0+"):
    topic_name: str
