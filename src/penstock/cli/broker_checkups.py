"""What `doctor` looks at through the network: whether a broker answers, where it sends clients, what it can do."""

import time
from typing import TYPE_CHECKING

from penstock.cli.checkups import Finding, well, wrong
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError, ConnectionLost, NotABroker, TimedOut, Unreachable, Unsupported
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import Moment, list_offsets
from penstock.wire.messages.create_topics import CreateTopicsRequest
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.list_offsets import ListOffsetsRequest
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from penstock.client.connection import BrokerConnection
    from penstock.wire.declare import Request

CONNECT_MS = 3_000
AHEAD_MS_MAX = 60_000
PARTITIONS_MAX = 100
NEEDED: "tuple[type[Request], ...]" = (
    MetadataRequest,
    ProduceRequest,
    FetchRequest,
    ListOffsetsRequest,
    CreateTopicsRequest,
)


async def broker_findings(bootstrap: str | None) -> list[Finding]:
    """All of them; the first that fails ends it."""
    cluster = Cluster(bootstrap, client_id="penstock-doctor", connect_timeout_ms=CONNECT_MS, timeout_ms=2 * CONNECT_MS)
    shown = ",".join(map(str, cluster.bootstrap))
    try:
        try:
            connection = await cluster.any_connection()
            await cluster.refresh(timeout_ms=1)
        except ClientError as error:
            return [unreached(shown, error)]
        found = [well("broker", f"{shown} answers"), _age(connection)]
        found += await _addresses(cluster)
        found.append(await _future(cluster))
        return found
    finally:
        await cluster.close()


def unreached(address: str, error: ClientError) -> Finding:
    """Who is there instead, and what to do about it."""
    text = str(error)
    match error:
        case NotABroker() if "TLS" in text:
            return wrong("broker", text, "use the broker's PLAINTEXT listener: this client does not speak TLS yet")
        case NotABroker():
            return wrong(
                "broker", text, "another program has the port: use -b with the right one, or penstock dev --port"
            )
        case ConnectionLost() | Unreachable() if "closed the connection" in text:
            return wrong("broker", text, "use the broker's PLAINTEXT listener, and look at what the broker has logged")
        case ConnectionLost() | Unreachable() | TimedOut():
            return wrong("broker", text, "start one with `penstock dev`, or say where yours is with -b host:port")
    return wrong("broker", text, f"look at what the broker at {address} has logged")


def _age(connection: "BrokerConnection") -> Finding:
    for request in NEEDED:
        try:
            connection.version_for(request)
        except Unsupported as error:
            return wrong("versions", str(error), "upgrade whichever is older, the broker or penstock")
    return well("versions", "broker and client have versions in common")


async def _addresses(cluster: Cluster) -> list[Finding]:
    """Whether the addresses that brokers give to clients lead to them."""
    found = []
    for broker in cluster.view.brokers.values():
        try:
            await cluster.connection(broker.node_id)
        except ClientError as error:
            text = (
                f"broker {broker.node_id} sends clients to {broker.address}, which this machine cannot reach: {error}"
            )
            found.append(wrong("advertised", text, "set advertised.listeners to an address that clients reach"))
        else:
            found.append(well("advertised", f"broker {broker.node_id} is at {broker.address}, as it says"))
    return found


async def _future(cluster: Cluster) -> Finding:
    """Records from the future tell of a clock that is ahead: this one is behind, or a producer's is ahead."""
    await cluster.refresh(None)
    partitions = [
        TopicPartition(topic.name, each.index)
        for topic in cluster.view.topics.values()
        for each in topic.partitions
        if each.leader >= 0
    ][:PARTITIONS_MAX]
    try:
        newest = await list_offsets(cluster, dict.fromkeys(partitions, Moment.MAX_TIMESTAMP)) if partitions else {}
    except ClientError as error:
        return wrong("clocks", f"the newest records cannot be looked up: {error}", "see the findings above")
    now_ms = time.time() * 1000
    ahead = {each: at.timestamp_ms - now_ms for each, at in newest.items() if at.timestamp_ms > now_ms + AHEAD_MS_MAX}
    if ahead:
        worst = max(ahead, key=ahead.__getitem__)
        text = f"{worst} has a record from {ahead[worst] / 1000:.0f} s in the future"
        return wrong("clocks", text, "set the clocks of this machine and of the producer by NTP")
    return well("clocks", "no record is from the future")
