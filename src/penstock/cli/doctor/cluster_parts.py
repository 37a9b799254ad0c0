"""The parts of a bundle that a cluster answers: its state, its settings, its groups, and the metrics of its brokers.

All are asked at the same time, so that together they take no longer than the time limit.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from penstock.cli.connection.connecting import open_client
from penstock.cli.doctor.port_owner import is_here
from penstock.client.admin.configs import ConfigKind
from penstock.client.bootstrap import parse_address
from penstock.client.errors import ClientError
from penstock.client.metadata import Broker, TopicPartition
from penstock.client.offsets import Moment, list_offsets

if TYPE_CHECKING:
    from penstock.cli.doctor.bundle import Bundle
    from penstock.client.bootstrap import FoundCluster
    from penstock.client.client import Client

GROUPS_MAX: Final = 200
PARTITIONS_MAX: Final = 10_000
METRICS: Final = "metrics.listener"
METRICS_BYTES_MAX: Final = 64 << 20
METRICS_S: Final = 5.0
_EVERYWHERE = ("", "0.0.0.0", "::", "[::]")  # noqa: S104 - compared with, not bound to


async def add_cluster(bundle: "Bundle", place: "FoundCluster", timeout_s: float) -> None:
    """Adds all parts of a cluster, and the reasons for those that are missing after the time limit."""
    limit_ms = int(timeout_s * 1000)
    async with open_client(
        place, connect_timeout_ms=limit_ms, request_timeout_ms=limit_ms, timeout_ms=limit_ms
    ) as client:
        try:
            async with asyncio.timeout(timeout_s):
                await client.cluster.refresh(timeout_ms=1)
        except (ClientError, TimeoutError) as error:
            bundle.lacks("cluster", error if str(error) else f"no answer within {timeout_s:g} s")
            return
        questions = dict(_QUESTIONS)
        for broker in client.cluster.view.brokers.values():
            questions |= _of_broker(broker)
        await asyncio.gather(*(_add(bundle, name, ask(client), timeout_s) for name, ask in questions.items()))


async def _add(bundle: "Bundle", name: str, question: Awaitable[object], timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            bundle.add(name, await question)
    except TimeoutError:
        bundle.lacks(name, f"no answer within {timeout_s:g} s")
    except (ClientError, OSError, ValueError) as error:
        bundle.lacks(name, error)


# --- questions --------------------------------------------------------------------------------------------------------


async def _health(client: "Client") -> object:
    from penstock.cli.cluster.checkups import health_findings
    from penstock.cli.cluster.state import survey

    return [each._asdict() for each in health_findings(await survey(client))]


async def _topic_settings(client: "Client") -> object:
    names = [each.name for each in await client.admin.list_topics(with_internal=True)]
    found = await client.admin.describe_topic_configs(names) if names else {}
    return {
        topic: [each for each in entries.values() if not each.is_default] for topic, entries in sorted(found.items())
    }


async def _offsets(client: "Client") -> object:
    topics = await client.admin.list_topics(with_internal=True)
    led = [TopicPartition(each.name, part.index) for each in topics for part in each.partitions if part.leader >= 0]
    asked = led[:PARTITIONS_MAX]
    starts = await list_offsets(client.cluster, dict.fromkeys(asked, Moment.EARLIEST)) if asked else {}
    ends = await list_offsets(client.cluster, dict.fromkeys(asked, Moment.LATEST)) if asked else {}
    return {
        "partitions": {each: {"start": starts[each].offset, "end": ends[each].offset} for each in asked},
        "left_out": len(led) - len(asked),
    }


async def _groups(client: "Client") -> object:
    listed = await client.admin.list_groups()

    async def ask(group: str) -> object:
        try:
            described, committed = await asyncio.gather(
                client.admin.describe_group(group), client.admin.group_offsets(group)
            )
        except ClientError as error:
            return error
        return {"description": described, "committed": committed}

    names = [each.group_id for each in listed[:GROUPS_MAX]]
    found = dict(zip(names, await asyncio.gather(*map(ask, names)), strict=True))
    return {"list": listed, "groups": found, "left_out": len(listed) - len(names)}


_QUESTIONS: Mapping[str, "Callable[[Client], Awaitable[object]]"] = {
    "cluster/health.json": _health,
    "cluster/brokers.json": lambda client: client.admin.describe_cluster(),
    "cluster/quorum.json": lambda client: client.admin.describe_quorum(),
    "cluster/features.json": lambda client: client.admin.describe_features(),
    "cluster/topics.json": lambda client: client.admin.list_topics(with_internal=True),
    "cluster/topic-settings.json": _topic_settings,
    "cluster/offsets.json": _offsets,
    "cluster/moves.json": lambda client: client.admin.list_reassignments(),
    "cluster/groups.json": _groups,
    "cluster/settings-of-all-brokers.json": lambda client: client.admin.describe_configs(ConfigKind.BROKER, ""),
}


def _of_broker(broker: Broker) -> dict[str, "Callable[[Client], Awaitable[object]]"]:
    node_id = broker.node_id

    async def settings(client: "Client") -> object:
        return await client.admin.describe_configs(ConfigKind.BROKER, str(node_id))

    async def log_dirs(client: "Client") -> object:
        return (await client.admin.log_dirs([node_id]))[node_id]

    async def metrics(client: "Client") -> object:
        found = await client.admin.describe_configs(ConfigKind.BROKER, str(node_id), names=[METRICS])
        entry = found.get(METRICS)
        if entry is None or not entry.value:
            raise ValueError(f"broker {node_id} has no {METRICS}")
        return await asyncio.to_thread(_metrics, broker, entry.value)

    return {
        f"brokers/{node_id}/settings.json": settings,
        f"brokers/{node_id}/log-dirs.json": log_dirs,
        f"brokers/{node_id}/metrics.txt": metrics,
    }


def _metrics(broker: Broker, listener: str) -> bytes:
    import http.client

    host, port = parse_address(listener)
    if host in _EVERYWHERE:
        host = broker.host
    elif is_here(host) and not is_here(broker.host):
        raise ValueError(f"broker {broker.node_id} serves metrics at {listener}, for its own machine only")
    connection = http.client.HTTPConnection(host, port, timeout=METRICS_S)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise ValueError(f"http://{host}:{port}/metrics answers {response.status} {response.reason}")
        return response.read(METRICS_BYTES_MAX)
    except http.client.HTTPException as error:
        raise ValueError(f"http://{host}:{port}/metrics: {type(error).__name__}: {error}") from error
    finally:
        connection.close()
