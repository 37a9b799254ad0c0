"""Descriptions of the brokers and their log directories."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.client.cluster import Cluster
from penstock.client.connection.connection import BrokerConnection
from penstock.client.errors import ClientError, Unsupported, check
from penstock.client.metadata import Broker, TopicPartition
from penstock.client.offsets import by_topic
from penstock.model.errors import ErrorCode
from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

_FIRST_WITH_FENCED = 2


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's brokers; in KRaft `controller_id` is a broker that forwards requests to the controller."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Broker, ...]
    fenced: tuple[Broker, ...] = ()
    """Registered brokers that are down or not ready; old brokers do not report them."""


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory: its capacity (-1 if not reported), and the size in bytes of each replica in it."""

    path: str
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    replicas: Mapping[TopicPartition, int]


async def describe_cluster(cluster: Cluster, *, timeout_ms: int | None = None) -> ClusterDescription:
    """The current brokers."""
    retry = cluster.retry(timeout_ms)
    while True:
        try:
            response = await _ask_for_cluster(await cluster.any_connection())
        except Unsupported:  # brokers before 2.8
            await cluster.refresh(timeout_ms=retry.left_ms)
            view = cluster.view
            return ClusterDescription(view.cluster_id, view.controller_id, tuple(view.brokers.values()))
        except ClientError as error:
            await retry.after(error)
        else:
            break
    check(response.error_code, response.error_message)
    found = [(Broker(each.broker_id, each.host, each.port, each.rack), each.is_fenced) for each in response.brokers]
    return ClusterDescription(
        response.cluster_id,
        response.controller_id,
        tuple(broker for broker, is_fenced in found if not is_fenced),
        tuple(broker for broker, is_fenced in found if is_fenced),
    )


async def unregister_broker(cluster: Cluster, node_id: int, *, timeout_ms: int | None = None) -> None:
    """Removes a broker from the list of brokers. One that runs registers again when it is restarted."""
    response = await cluster.ask_controller(
        UnregisterBrokerRequest(broker_id=node_id),
        UnregisterBrokerResponse,
        lambda answer: [] if answer.error_code is ErrorCode.NONE else [answer.error_code],
        timeout_ms=timeout_ms,
    )
    check(response.error_code, response.error_message, f"broker {node_id}")


async def _ask_for_cluster(connection: BrokerConnection) -> DescribeClusterResponse:
    tells_fenced = connection.version_for(DescribeClusterRequest) >= _FIRST_WITH_FENCED
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=tells_fenced)
    return await connection.ask(request, DescribeClusterResponse)


async def log_dirs(
    cluster: Cluster,
    node_ids: Iterable[int] | None = None,
    *,
    partitions: Sequence[TopicPartition] | None = None,
    timeout_ms: int | None = None,
) -> dict[int, list[LogDir]]:
    """The log directories of some or all brokers, with the replicas of some or all partitions."""
    await cluster.refresh(timeout_ms=timeout_ms)
    wanted = sorted(cluster.view.brokers) if node_ids is None else list(node_ids)
    topics = None
    if partitions is not None:
        topics = [
            DescribableLogDirTopic(topic=topic, partitions=[each.partition for each in parts])
            for topic, parts in by_topic(partitions).items()
        ]
    request = DescribeLogDirsRequest(topics=topics)
    found = await asyncio.gather(*(_log_dirs_of(cluster, node_id, request, timeout_ms) for node_id in wanted))
    return dict(zip(wanted, found, strict=True))


async def _log_dirs_of(
    cluster: Cluster, node_id: int, request: DescribeLogDirsRequest, timeout_ms: int | None
) -> list[LogDir]:
    response = await cluster.ask_checked(
        request,
        DescribeLogDirsResponse,
        lambda answer: () if answer.error_code is ErrorCode.NONE else (answer.error_code,),
        node_id=lambda: node_id,
        timeout_ms=timeout_ms,
    )
    check(response.error_code, None, f"broker {node_id}")
    return _log_dirs(response)


async def log_dirs_at(cluster: Cluster, broker: Broker) -> list[LogDir]:
    """The log directories of a broker, without replicas; works for fenced brokers too. Makes one attempt."""
    connection = await cluster.connection_to(broker.address)
    response = await connection.ask(DescribeLogDirsRequest(topics=[]), DescribeLogDirsResponse)
    check(response.error_code, None, f"broker {broker.node_id}")
    return _log_dirs(response)


def _log_dirs(response: DescribeLogDirsResponse) -> list[LogDir]:
    return [
        LogDir(
            each.log_dir,
            each.error_code,
            each.total_bytes,
            each.usable_bytes,
            {
                TopicPartition(topic.name, part.partition_index): part.partition_size
                for topic in each.topics
                for part in topic.partitions
            },
        )
        for each in response.results
    ]
