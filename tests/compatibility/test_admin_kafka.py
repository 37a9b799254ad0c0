"""A whole node and a running Kafka get the same requests about topics, cluster and settings, and answer the same."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.kafka.kafka_node import CLUSTER_ID, KafkaNode
from harness.raw_client import RawClient
from penstock.metadata.commands import ConfigChanges, IncrementalAlterConfigs
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.errors import ErrorCode
from penstock.server.host_ports import host_ports
from penstock.server.node import Node
from penstock.server.settings import ListenerSettings, NodeSettings
from penstock.wire.api import Api, response_class
from penstock.wire.declare import Request
from penstock.wire.messages import alter_configs as replacing
from penstock.wire.messages import create_partitions as growing
from penstock.wire.messages import create_topics as creating
from penstock.wire.messages import delete_topics as deleting
from penstock.wire.messages import describe_configs as describing
from penstock.wire.messages import describe_topic_partitions as paging
from penstock.wire.messages import incremental_alter_configs as changing
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.list_config_resources import ListConfigResourcesRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.types import ZERO_UUID

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("apache-kafka")]

NODE = 1
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
NOBODY = b"nobody's own id."
NONE = ErrorCode.NONE
SHOWN_S = 10.0


class NodeInThread:
    """A node with an event loop of its own."""

    def __init__(self, directory: Path, settings: BrokerSettings) -> None:
        self._directory = directory
        self._settings = settings
        self._started: queue.Queue[str | BaseException] = queue.Queue()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> str:
        self._thread.start()
        started = self._started.get(timeout=30)
        if isinstance(started, BaseException):
            raise started
        return started

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(30)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._started.put(error)
            raise

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        ports = host_ports(self._directory)
        node = Node(ports, NodeSettings(CLUSTER_ID, NODE, listeners=(ListenerSettings(port=0),), broker=self._settings))
        await node.start()
        # Kafka keeps this one for the whole cluster, as long as it keeps eligible leader replicas (KIP-966).
        change = ConfigChanges(BROKER, "", (("min.insync.replicas", SET, "1"),))
        await node.member.controller.ask(IncrementalAlterConfigs((change,), NODE))
        self._started.put(node.address)
        await self._ended.wait()
        await node.stop()
        ports.close()


@pytest.fixture(scope="module")
def clients(
    kafka: KafkaNode, kafka_client: RawClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RawClient, RawClient]]:
    """A client of Kafka and a client of our node."""
    ours = {name: value for name, value in kafka.properties.items() if "listener" not in name}
    node = NodeInThread(tmp_path_factory.mktemp("node"), BrokerSettings(ours))
    with node as address, RawClient(address) as client:
        yield kafka_client, client


class Both:
    """Sends requests to both, and compares what `look` extracts from the responses."""

    def __init__(self, clients: tuple[RawClient, RawClient]) -> None:
        self.theirs, self.ours = clients

    def ask(self, request: Request, look: Callable[[Any], Any], version: int | None = None) -> None:
        self.ask_each(lambda _client: request, look, version)

    def ask_each(
        self, request: Callable[[RawClient], Request], look: Callable[[Any], Any], version: int | None = None
    ) -> None:
        answers = []
        for client in (self.theirs, self.ours):
            asked = request(client)
            answers.append(look(client.ask(asked, response_class(Api(asked.KEY)), version)))
        assert answers[1] == answers[0]

    def create(self, *topics: creating.CreatableTopic, version: int = 7, **options: Any) -> None:
        """Creates topics, and waits until Kafka shows them: its responses come a moment earlier."""
        self.ask(creating.CreateTopicsRequest(topics=topics, **options), created, version)
        made = [topic.name for topic in topics if self.ours.metadata(topic.name).topics[0].error_code is NONE]
        deadline = time.monotonic() + SHOWN_S
        while any(topic.error_code for topic in self.theirs.metadata(*made).topics):
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture
def both(clients: tuple[RawClient, RawClient]) -> Both:
    return Both(clients)


def said(message: str | None) -> str | None:
    return None if message is None else message.partition("; did you mean")[0]


def a_topic(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> creating.CreatableTopic:
    return creating.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=(),
        configs=[
            creating.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


def has_id(topic: Any) -> bool:
    return bool(topic.topic_id != ZERO_UUID)


# --- topics -----------------------------------------------------------------------------------------------------------


def created(response: Any) -> Any:
    return sorted(
        (
            t.name,
            t.error_code,
            said(t.error_message),
            has_id(t),
            t.num_partitions,
            t.replication_factor,
            t.topic_config_error_code,
            len(t.configs or ()) > 30,
        )
        for t in response.topics
    )


@pytest.mark.parametrize("version", range(2, 8))
def test_creation(both: Both, version: int) -> None:
    name = f"adm-v{version}"
    both.create(a_topic(name, 2, retention_ms="7"), version=version, validate_only=True)
    both.create(a_topic(name, 2, retention_ms="7"), a_topic("adm x"), a_topic(""), version=version)
    both.create(a_topic(name), a_topic(f"{name}-b", 0), a_topic(f"{name}-c", 1, 5), version=version)
    both.create(a_topic(f"{name}-d", retention_mss="7"), a_topic(f"{name}-e", retention_ms="x"), version=version)
    both.create(a_topic(f"{name}-f"), a_topic(f"{name}-f"), a_topic("__cluster_metadata"), version=version)
    both.create(version=version)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_no_time(both: Both, timeout_ms: int) -> None:
    both.create(a_topic("adm-never"), a_topic("a b"), timeout_ms=timeout_ms)
    state = deleting.DeleteTopicState(name="adm-never", topic_id=ZERO_UUID)
    both.ask(deleting.DeleteTopicsRequest(topics=[state], timeout_ms=timeout_ms), deleted)
    more = growing.CreatePartitionsTopic(name="adm-never", count=2, assignments=None)
    both.ask(growing.CreatePartitionsRequest(topics=[more], timeout_ms=timeout_ms, validate_only=False), grown)
    both.ask(MetadataRequest(topics=[MetadataRequestTopic(name="adm-never")], allow_auto_topic_creation=False), topics)


def deleted(response: Any) -> Any:
    return sorted((str(t.name), t.error_code, str(t.error_message), has_id(t)) for t in response.responses)


@pytest.mark.parametrize("version", range(1, 7))
def test_deletion(both: Both, version: int) -> None:
    names = [f"adm-del{version}", "adm-nobody", "a b"]
    both.create(a_topic(names[0]))
    if version < 6:
        request = deleting.DeleteTopicsRequest(topic_names=names, timeout_ms=5_000)
    else:
        states = [deleting.DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
        states += [deleting.DeleteTopicState(name=None, topic_id=each) for each in (NOBODY, ZERO_UUID)]
        request = deleting.DeleteTopicsRequest(topics=states, timeout_ms=5_000)
    both.ask(request, deleted, version)


def grown(response: Any) -> Any:
    return sorted((t.name, t.error_code, str(t.error_message)) for t in response.results)


@pytest.mark.parametrize("version", range(4))
def test_growth(both: Both, version: int) -> None:
    name = f"adm-grow{version}"
    both.create(a_topic(name))
    asked = [(name, 3, None), ("adm-nobody", 2, None)], [(name, 3, None)], [(name, 1, None)], [(name, 4, [[7]])]
    for some in asked:
        more = [
            growing.CreatePartitionsTopic(
                name=each,
                count=count,
                assignments=None
                if brokers is None
                else [growing.CreatePartitionsAssignment(broker_ids=ids) for ids in brokers],
            )
            for each, count, brokers in some
        ]
        both.ask(growing.CreatePartitionsRequest(topics=more, timeout_ms=5_000, validate_only=False), grown, version)


# --- metadata ---------------------------------------------------------------------------------------------------------


def topics(response: Any) -> Any:
    return (
        len(response.brokers),
        response.cluster_id,
        response.controller_id,
        response.cluster_authorized_operations,
        response.error_code,
        sorted(
            (
                str(t.name),
                t.error_code,
                has_id(t),
                t.is_internal,
                t.topic_authorized_operations,
                [
                    (p.error_code, p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes)
                    for p in sorted(t.partitions, key=lambda p: p.partition_index)
                ],
            )
            for t in response.topics
            if not t.name or t.name.startswith("adm-meta") or t.error_code
        ),
    )


@pytest.mark.parametrize("version", range(14))
def test_metadata(both: Both, version: int) -> None:
    name = f"adm-meta{version}"
    both.create(a_topic(name, 3))
    options: dict[str, Any] = {"allow_auto_topic_creation": False} if version >= 4 else {}

    def ask(*names: str | None, **more: Any) -> None:
        asked = [MetadataRequestTopic(name=each) for each in names]
        both.ask(MetadataRequest(topics=asked, **options, **more), topics, version)

    ask(name, "adm-nobody", "a b", "", name, "__consumer_offsetz")
    if version:
        ask()
        both.ask(MetadataRequest(topics=None, **options), topics, version)
    if version >= 8:
        ask(name, "adm-nobody", include_topic_authorized_operations=True)
    if 8 <= version <= 10:
        ask(include_cluster_authorized_operations=True)
    if version in (10, 11):
        ask(None)
    if version >= 12:

        def by_id(client: RawClient) -> Request:
            known = client.topic(name).topic_id
            asked = [MetadataRequestTopic(name=None, topic_id=each) for each in (known, NOBODY)]
            return MetadataRequest(topics=[*asked, MetadataRequestTopic(name="adm-nobody")], **options)

        both.ask_each(by_id, topics, version)


@pytest.mark.parametrize(("version", "kind"), [(0, 1), (1, 1), (2, 1), (1, 2), (2, 2), (1, 3), (2, 3)])
@pytest.mark.parametrize("operations", [False, True])
def test_cluster(both: Both, version: int, kind: int, operations: bool) -> None:
    def look(response: Any) -> Any:
        brokers = [(broker.broker_id, broker.rack, broker.is_fenced) for broker in response.brokers]
        answered = (response.error_code, response.error_message, response.endpoint_type, response.cluster_id)
        return (*answered, response.controller_id, response.cluster_authorized_operations, brokers)

    request = DescribeClusterRequest(include_cluster_authorized_operations=operations, endpoint_type=kind)
    both.ask(request, look, version)


def test_pages(both: Both) -> None:
    both.create(a_topic("adm-page-a", 5), a_topic("adm-page-b", 2))

    def look(response: Any) -> Any:
        cursor = response.next_cursor
        return (
            None if cursor is None else (cursor.topic_name, cursor.partition_index),
            [
                (
                    t.name,
                    t.error_code,
                    has_id(t),
                    t.is_internal,
                    t.topic_authorized_operations,
                    [
                        (
                            *(p.error_code, p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes),
                            *(p.isr_nodes, p.eligible_leader_replicas, p.last_known_elr, p.offline_replicas),
                        )
                        for p in t.partitions
                    ],
                )
                for t in response.topics
            ],
        )

    def page(*names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None) -> None:
        at = None if cursor is None else paging.Cursor(topic_name=cursor[0], partition_index=cursor[1])
        asked = [paging.TopicRequest(name=name) for name in names]
        request = paging.DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=limit, cursor=at)
        both.ask(request, look)

    a, b = "adm-page-a", "adm-page-b"
    page(b, a, "adm-nobody", "a b", a)
    for limit in (-1, 0, 1, 4, 5, 6, 7, 8):
        page(b, a, limit=limit)
        page(b, a, "adm-page-aa", limit=limit, cursor=(a, 3))
    for cursor in ((a, 5), (a, 100), (b, 0), (a, -1), ("adm-nobody", 0), ("zzz", 0)):
        page(a, b, cursor=cursor)


# --- settings ---------------------------------------------------------------------------------------------------------


def described(response: Any) -> Any:
    return [
        (r.error_code, r.error_message, r.resource_type, r.resource_name, sorted(config(c) for c in r.configs))
        for r in response.results
    ]


def config(c: Any) -> Any:
    synonyms = [(s.name, s.value, s.source) for s in c.synonyms]
    return (c.name, str(c.value), c.read_only, c.config_source, c.is_sensitive, synonyms, c.config_type)


@pytest.mark.parametrize("version", range(1, 5))
def test_description(both: Both, version: int) -> None:
    name = f"adm-conf{version}"
    both.create(a_topic(name, retention_ms="7", cleanup_policy="compact"))
    some = ["retention.ms", "cleanup.policy", "segment.bytes", "bogus"]
    resources = [
        (TOPIC, name, some),
        (TOPIC, "adm-nobody", None),
        (TOPIC, "a b", None),
        (TOPIC, "", None),
        (BROKER, "1", ["num.io.threads", "offsets.topic.num.partitions", "ssl.keystore.password", "bogus"]),
        (BROKER, "", None),
        (BROKER, "7", None),
        (BROKER, "x", None),
        (LOGGER, "", None),
        (LOGGER, "7", None),
        (LOGGER, "x", None),
        (LOGGER, "1", ["nobody"]),
        (GROUP, "adm-group", ["consumer.session.timeout.ms", "bogus"]),
        (GROUP, "", None),
    ]
    for include_synonyms in (False, True):
        for kind, each, keys in resources:
            asked = describing.DescribeConfigsResource(resource_type=kind, resource_name=each, configuration_keys=keys)
            request = describing.DescribeConfigsRequest(resources=[asked], include_synonyms=include_synonyms)
            both.ask(request, described, version)


@pytest.mark.parametrize("kind", [0, 1, 3, 64])
def test_description_of_unknown_types(both: Both, kind: int) -> None:
    asked = [
        describing.DescribeConfigsResource(resource_type=each, resource_name="1", configuration_keys=None)
        for each in (kind, BROKER)
    ]
    both.ask(describing.DescribeConfigsRequest(resources=asked), described)


def altered(response: Any) -> Any:
    """Both reject a resource that is named twice; Kafka reports it twice, we report it once."""
    found = [(r.error_code, said(r.error_message), r.resource_type, r.resource_name) for r in response.responses]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("version", range(2))
def test_changes(both: Both, version: int) -> None:
    name = f"adm-change{version}"
    both.create(a_topic(name))

    def change(*resources: tuple[int, str, list[Any]]) -> None:
        request = changing.IncrementalAlterConfigsRequest(
            resources=[
                changing.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=each,
                    configs=[changing.AlterableConfig(name=n, config_operation=o, value=v) for n, o, v in configs],
                )
                for kind, each, configs in resources
            ],
            validate_only=False,
        )
        both.ask(request, altered, version)

    change((TOPIC, name, [("retention.ms", SET, "5")]), (TOPIC, "adm-nobody", [("retention.ms", SET, "5")]))
    change((TOPIC, name, [("cleanup.policy", APPEND, "compact")]), (TOPIC, name, []))
    change((TOPIC, name, [("bogus", SET, "5")]), (GROUP, "", []), (BROKER, "7", []), (3, "x", []))
    for logger in ("", "x", "7"):
        change((LOGGER, logger, [("root", SET, "INFO")]))
    for operation in (DELETE, APPEND, SUBTRACT):
        change((LOGGER, "1", [("root", operation, "INFO")]))
    for level in ("INFO", "info", "OFF", ""):
        change((TOPIC, name, []), (LOGGER, "1", [("root", SET, level)]))
    change((LOGGER, "1", [("nobody", SET, "INFO")]), (LOGGER, "2", []), (LOGGER, "2", []))
    for key in ("retention.ms", "cleanup.policy"):
        asked = describing.DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=[key])
        both.ask(describing.DescribeConfigsRequest(resources=[asked]), described)


@pytest.mark.parametrize("version", range(3))
def test_replacements(both: Both, version: int) -> None:
    name = f"adm-replace{version}"
    both.create(a_topic(name, retention_ms="7", segment_ms="9"))
    for kind, each, configs in (
        (TOPIC, name, {"retention.ms": "5"}),
        (TOPIC, name, {"retention.mss": "5"}),
        (TOPIC, "adm-nobody", {}),
        (BROKER, "7", {}),
        (LOGGER, "1", {"root": "INFO"}),
    ):
        resource = replacing.AlterConfigsResource(
            resource_type=kind,
            resource_name=each,
            configs=[replacing.AlterableConfig(name=n, value=v) for n, v in configs.items()],
        )
        both.ask(replacing.AlterConfigsRequest(resources=[resource], validate_only=False), altered, version)


@pytest.mark.parametrize(
    "kinds", [(), (TOPIC,), (BROKER, LOGGER), (METRICS,), (GROUP,), (3,), (0, TOPIC), (TOPIC, TOPIC)]
)
def test_resources(both: Both, kinds: tuple[int, ...]) -> None:
    both.create(a_topic("adm-listed"))

    def look(response: Any) -> Any:
        named = ((each.resource_type, each.resource_name) for each in response.config_resources)
        # Other tests leave topics and groups behind.
        ours = (each for each in named if each[0] not in {TOPIC, GROUP} or each[1].startswith("adm-listed"))
        return response.error_code, sorted(ours)

    both.ask(ListConfigResourcesRequest(resource_types=kinds), look)
    both.ask(ListConfigResourcesRequest(), look, 0)
