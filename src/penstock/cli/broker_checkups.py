"""What `doctor` looks at through the network: whether a broker answers, who does instead, where it sends clients."""

from typing import TYPE_CHECKING

from penstock.cli.checkups import DESCRIPTORS_MIN, MORE_DESCRIPTORS
from penstock.cli.listening import Owner, descriptors_of, is_here, owner_of
from penstock.client.cluster import Cluster
from penstock.client.errors import (
    ClientError,
    ConnectionLost,
    LoginFailed,
    NotABroker,
    TimedOut,
    Unreachable,
    Unsupported,
)
from penstock.model.findings import Finding, well, wrong
from penstock.wire.messages.create_topics import CreateTopicsRequest
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.list_offsets import ListOffsetsRequest
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from penstock.client.connection import BrokerConnection
    from penstock.wire.declare import Request

ANSWER_MS = 3_000
NEEDED: "tuple[type[Request], ...]" = (
    MetadataRequest,
    ProduceRequest,
    FetchRequest,
    ListOffsetsRequest,
    CreateTopicsRequest,
)


async def broker_findings(bootstrap: str | None) -> list[Finding]:
    """All of them; where nobody answers, only why."""
    from penstock.cli.broker_vitals import future_finding, vital_findings

    cluster = Cluster(
        bootstrap,
        client_id="penstock-doctor",
        connect_timeout_ms=ANSWER_MS,
        request_timeout_ms=ANSWER_MS,
        timeout_ms=2 * ANSWER_MS,
    )
    shown = ",".join(map(str, cluster.bootstrap))
    owner = next((owner_of(each.port) for each in cluster.bootstrap if is_here(each.host)), None)
    try:
        try:
            connection = await cluster.any_connection()
            await cluster.refresh(timeout_ms=1)
        except ClientError as error:
            return [await _who_is_it(cluster, shown, error, owner)]
        found = [well("broker", f"{shown} answers"), _age(connection)]
        if owner is not None and owner.pid is not None:
            found += _descriptors(owner)
        reached, addresses = await _addresses(cluster, shown)
        found += addresses
        if not reached and len(cluster.view.brokers) == 1:
            reached = dict.fromkeys(cluster.view.brokers, connection)  # it is the one that we have reached
        for node_id, its_connection in reached.items():
            found += await vital_findings(node_id, its_connection)
        if all(each.is_well for each in addresses):
            found.append(await future_finding(cluster))
        return found
    finally:
        await cluster.close()


async def _who_is_it(cluster: Cluster, shown: str, error: ClientError, owner: Owner | None) -> Finding:
    if "the connection" in str(error):  # some close it without a word on whoever does not begin with TLS
        for each in cluster.bootstrap:
            if await speaks_tls(each.host, each.port):
                return unreached(shown, NotABroker(f"{each} speaks TLS, and closes on those who do not"))
    return unreached(shown, error, owner)


async def speaks_tls(host: str, port: int) -> bool:
    """Whether somebody shakes hands; who it is does not matter here."""
    import asyncio
    import ssl

    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(ANSWER_MS / 1000):
            _, writer = await asyncio.open_connection(host, port, ssl=trusting)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def unreached(address: str, error: ClientError, owner: Owner | None = None) -> Finding:
    """Who is there instead, and what to do about it."""
    text = str(error)
    if isinstance(error, NotABroker) and "TLS" in text:
        return wrong("broker", text, "use the broker's PLAINTEXT listener: this client does not speak TLS yet")
    if owner is not None and "nothing listens" not in text and not isinstance(error, LoginFailed):
        kill = "" if owner.pid is None else f" (kill {owner.pid})"
        fix = f"stop it{kill}, or let the broker listen elsewhere: penstock dev --port 0, or listeners in its file"
        return wrong("port", f"{address} is taken by {owner}, which does not answer as a broker: {text}", fix)
    match error:
        case NotABroker():
            return wrong("broker", text, "another program has the port: say where the broker is with -b host:port")
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


def _descriptors(owner: Owner) -> list[Finding]:
    """What the broker that runs here was given, which may be less than what we are."""
    limit = None if owner.pid is None else descriptors_of(owner.pid)
    if limit is None or limit >= DESCRIPTORS_MIN:
        return []
    return [wrong("descriptors", f"the broker, {owner}, may open {limit} files only", MORE_DESCRIPTORS)]


async def _addresses(cluster: Cluster, shown: str) -> "tuple[dict[int, BrokerConnection], list[Finding]]":
    """Whether the addresses that brokers give to clients lead to them."""
    reached, found = {}, []
    for broker in cluster.view.brokers.values():
        try:
            reached[broker.node_id] = await cluster.connection(broker.node_id)
        except ClientError as error:
            text = f"broker {broker.node_id} sends clients to {broker.address}, which this machine cannot use: {error}"
            fix = "set advertised.listeners to an address that clients reach"
            if len(cluster.view.brokers) == 1:
                fix += f", such as PLAINTEXT://{shown} which you have just used, or remove it"
            found.append(wrong("advertised", text, f"{fix}; then restart the broker"))
        else:
            found.append(well("advertised", f"broker {broker.node_id} is at {broker.address}, as it says"))
    return reached, found
