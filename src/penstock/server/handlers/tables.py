"""Tables of all handlers of a node, and their construction."""

from typing import Final

from penstock.server.broker import Broker
from penstock.server.connections.advertised import AdvertisedBrokers
from penstock.server.connections.client_warnings import ClientWarnings
from penstock.server.connections.codec_worker import CodecWorker
from penstock.server.controller.controller_channel import ControllerChannel
from penstock.server.handlers.cluster.acls import AclsHandler
from penstock.server.handlers.cluster.api_versions import ApiVersionsHandler
from penstock.server.handlers.cluster.assigned_replicas import AssignedReplicasHandler
from penstock.server.handlers.cluster.brokers import BrokersHandler
from penstock.server.handlers.cluster.describe_cluster import DescribeClusterHandler
from penstock.server.handlers.cluster.envelope import EnvelopeHandler
from penstock.server.handlers.cluster.features import FeaturesHandler
from penstock.server.handlers.cluster.quorum import QuorumHandler
from penstock.server.handlers.cluster.quorum_admin import QuorumAdminHandler
from penstock.server.handlers.groups.classic_groups import ClassicGroupsHandler
from penstock.server.handlers.groups.consumer_groups import ConsumerGroupsHandler
from penstock.server.handlers.groups.find_coordinator import FindCoordinatorHandler
from penstock.server.handlers.groups.group_admin import GroupAdminHandler
from penstock.server.handlers.groups.offset_commit import OffsetCommitHandler
from penstock.server.handlers.groups.offset_delete import OffsetDeleteHandler
from penstock.server.handlers.groups.offset_fetch import OffsetFetchHandler
from penstock.server.handlers.records.delete_records import DeleteRecordsHandler
from penstock.server.handlers.records.describe_log_dirs import DescribeLogDirsHandler
from penstock.server.handlers.records.describe_producers import DescribeProducersHandler
from penstock.server.handlers.records.fetch import FetchHandler
from penstock.server.handlers.records.init_producer_id import InitProducerIdHandler
from penstock.server.handlers.records.list_offsets import ListOffsetsHandler
from penstock.server.handlers.records.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from penstock.server.handlers.records.produce import ProduceHandler
from penstock.server.handlers.topics.configs import ConfigsHandler
from penstock.server.handlers.topics.describe_configs import DescribeConfigsHandler
from penstock.server.handlers.topics.describe_topic_partitions import DescribeTopicPartitionsHandler
from penstock.server.handlers.topics.metadata import MetadataHandler
from penstock.server.handlers.topics.metadata_answer import TopicPieces
from penstock.server.handlers.topics.movements import MovementsHandler
from penstock.server.handlers.topics.topics import TopicsHandler
from penstock.server.partitions.topic_arrivals import TopicArrivals
from penstock.server.ports import Ports
from penstock.server.quorum_member import QuorumMember
from penstock.server.settings import NodeSettings
from penstock.server.storage import Storage
from penstock.wire.api import ALSO_ON_CONTROLLERS, CONTROLLER_ONLY, Api

BROKER_ONLY: Final = frozenset(Api) - CONTROLLER_ONLY - ALSO_ON_CONTROLLERS
"""APIs that controller listeners do not serve, even where their handlers could."""

SHARED_HANDLERS: Final[tuple[type, ...]] = (
    ApiVersionsHandler,
    BrokersHandler,
    DescribeClusterHandler,
    DescribeConfigsHandler,
    FeaturesHandler,
    MovementsHandler,
    QuorumAdminHandler,
    TopicsHandler,
)
"""Handlers of both broker and controller listeners."""
CONTROLLER_HANDLERS: Final[tuple[type, ...]] = (
    *SHARED_HANDLERS,
    AssignedReplicasHandler,
    ConfigsHandler,
    EnvelopeHandler,
    QuorumHandler,
)
"""Handlers of controller listeners."""
BROKER_HANDLERS: Final[tuple[type, ...]] = (
    *SHARED_HANDLERS,
    AclsHandler,
    ClassicGroupsHandler,
    ConfigsHandler,
    ConsumerGroupsHandler,
    DeleteRecordsHandler,
    DescribeLogDirsHandler,
    DescribeProducersHandler,
    DescribeTopicPartitionsHandler,
    FetchHandler,
    FindCoordinatorHandler,
    GroupAdminHandler,
    InitProducerIdHandler,
    ListOffsetsHandler,
    MetadataHandler,
    OffsetCommitHandler,
    OffsetDeleteHandler,
    OffsetFetchHandler,
    OffsetForLeaderEpochHandler,
    ProduceHandler,
)
"""Handlers of broker listeners."""


def shared_handlers(
    member: QuorumMember,
    advertised: AdvertisedBrokers,
    ports: Ports,
    settings: NodeSettings,
    client_warnings: ClientWarnings,
    arrivals: TopicArrivals,
) -> list[object]:
    """Constructs the handlers of both broker and controller listeners."""
    controller, quorum = member.controller, member.quorum
    return [
        ApiVersionsHandler(settings.features, controller),
        BrokersHandler(controller, member.probes, settings.cluster_id),
        DescribeClusterHandler(controller, quorum, advertised, settings.cluster_id),
        DescribeConfigsHandler(controller, ports.clock, client_warnings),
        FeaturesHandler(controller),
        MovementsHandler(controller),
        QuorumAdminHandler(quorum, settings.cluster_id, client_warnings, ports.clock),
        TopicsHandler(controller, arrivals),
    ]


def controller_handlers(
    member: QuorumMember, settings: NodeSettings, client_warnings: ClientWarnings, codec: CodecWorker
) -> list[object]:
    """Constructs the other handlers of controller listeners."""
    return [
        AssignedReplicasHandler(member.controller),
        ConfigsHandler(member.controller, None),
        EnvelopeHandler(member.controller, codec),
        QuorumHandler(member.quorum, settings.cluster_id, client_warnings),
    ]


def broker_handlers(
    broker: Broker,
    member: QuorumMember,
    channel: ControllerChannel,
    advertised: AdvertisedBrokers,
    storage: Storage,
    ports: Ports,
    settings: NodeSettings,
    arrivals: TopicArrivals,
    codec: CodecWorker,
) -> list[object]:
    """Constructs the other handlers of broker listeners."""
    controller, partitions, groups = member.controller, broker.partitions, broker.groups
    return [
        AclsHandler(),
        ClassicGroupsHandler(groups, codec),
        ConfigsHandler(controller, channel),
        ConsumerGroupsHandler(groups, controller, settings.features),
        DeleteRecordsHandler(partitions, broker.upkeep),
        DescribeLogDirsHandler(storage.directory, settings.data_path),
        DescribeProducersHandler(partitions),
        DescribeTopicPartitionsHandler(controller),
        FetchHandler(partitions, broker.replicas, broker.fetch_sessions, controller, codec, ports.clock),
        FindCoordinatorHandler(controller, channel, arrivals, groups, broker.broker_grace, advertised),
        GroupAdminHandler(groups),
        InitProducerIdHandler(broker.producer_ids),
        ListOffsetsHandler(partitions, broker.opener, broker.lease),
        MetadataHandler(
            controller, channel, arrivals, broker.broker_grace, advertised, TopicPieces(), settings.cluster_id
        ),
        OffsetCommitHandler(groups, controller, codec),
        OffsetDeleteHandler(groups, controller),
        OffsetFetchHandler(groups, controller),
        OffsetForLeaderEpochHandler(partitions),
        ProduceHandler(partitions, broker.sequence_gaps, broker.deadlines, broker.opener, codec, ports.clock),
    ]
