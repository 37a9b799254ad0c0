"""Checks of `doctor` over the network: whether a broker answers, which program does instead, advertised addresses."""

import asyncio
from typing import TYPE_CHECKING

from penstock.cli.connection.connecting import open_client
from penstock.cli.doctor.machine import DESCRIPTORS_MIN, MORE_DESCRIPTORS
from penstock.cli.doctor.port_owner import Owner, descriptors_of, is_here, owner_of
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
    from penstock.client.bootstrap import FoundCluster
    from penstock.client.connection.connection import BrokerConnection
    from penstock.wire.declare import Request

ANSWER_MS = 3_000
NEEDED: "tuple[type[Request], ...]" = (
    MetadataRequest,
    ProduceRequest,
    FetchRequest,
    ListOffsetsRequest,
    CreateTopicsRequest,
)


async def broker_findings(place: "FoundCluster", timeout_s: float = 2 * ANSWER_MS / 1000) -> list[Finding]:
    """All findings, what does not answer in time included; if no broker answers, only the reason."""
    answer_ms = min(ANSWER_MS, int(timeout_s * 500))
    found: list[Finding] = []
    async with open_client(
        place,
        client_id="penstock-doctor",
        connect_timeout_ms=answer_ms,
        request_timeout_ms=answer_ms,
        timeout_ms=2 * answer_ms,
    ) as client:
        try:
            async with asyncio.timeout(timeout_s):
                await _examine(client.cluster, found, answer_ms)
        except TimeoutError:
            shown = ",".join(map(str, client.cluster.bootstrap))
            if found:
                text = f"{shown} did not answer all questions within {timeout_s:g} s; what is not listed is not known"
            else:
                text = f"{shown} did not answer within {timeout_s:g} s"
            found.append(wrong("broker", text, "see whether it runs and is reachable; --timeout gives it more time"))
    return found


async def _examine(cluster: Cluster, found: list[Finding], answer_ms: int) -> None:
    """Appends findings as they are made. Without a majority of controllers, that comes first."""
    from penstock.cli.doctor.self_report import future_finding, vital_findings

    shown = ",".join(map(str, cluster.bootstrap))
    owner = next((owner_of(each.port) for each in cluster.bootstrap if is_here(each.host)), None)
    try:
        connection = await cluster.any_connection()
        await cluster.refresh(timeout_ms=1)
    except ClientError as error:
        found.append(await _who_is_it(cluster, shown, error, owner))
        return
    found += [well("broker", f"{shown} answers"), _age(connection)]
    if owner is not None and owner.pid is not None:
        found += _descriptors(owner)
    controllers, (reached, addresses) = await asyncio.gather(
        controller_finding(cluster, answer_ms), _addresses(cluster, shown)
    )
    found.insert(len(found) if controllers.is_well else 0, controllers)
    found += addresses
    if not reached and len(cluster.view.brokers) == 1:
        reached = dict.fromkeys(cluster.view.brokers, connection)  # the only broker has the bootstrap connection
    for findings in await asyncio.gather(*(vital_findings(*each) for each in reached.items())):
        found += findings
    if controllers.is_well and all(each.is_well for each in addresses):
        found.append(await future_finding(cluster))


async def controller_finding(cluster: Cluster, timeout_ms: int) -> Finding:
    """Checks that a majority of the controllers has a leader."""
    from penstock.cli.connection.majority import FIX, STOPS, WORKS, headline, is_confirmed, silent_text
    from penstock.client.admin.quorum_probe import probe_quorum

    try:
        probe = await probe_quorum(cluster, timeout_ms)
    except ClientError as error:
        return wrong("controller", f"whether the controllers have a majority is not known: {error}", FIX)
    if is_confirmed(probe):
        silent = silent_text(probe)
        if not silent:
            return well("controller", headline(probe))
        return wrong(
            "controller", f"{headline(probe)}; silent: {silent}", "start what is down: `penstock cluster health`"
        )
    parts = (headline(probe), silent_text(probe), f"what still works: {WORKS}", f"what does not: {STOPS}")
    return wrong("controller", "; ".join(filter(None, parts)), FIX)


async def _who_is_it(cluster: Cluster, shown: str, error: ClientError, owner: Owner | None) -> Finding:
    if "the connection" in str(error):  # some servers close connections that do not begin with TLS
        for each in cluster.bootstrap:
            if await speaks_tls(each.host, each.port):
                return unreached(shown, NotABroker(f"{each} speaks TLS, and closes on those who do not"))
    return unreached(shown, error, owner)


async def speaks_tls(host: str, port: int) -> bool:
    """Whether a TLS handshake succeeds; certificates are not verified."""
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
    """Explains why no broker was reached, and what to do about it."""
    text = str(error)
    if isinstance(error, NotABroker) and "TLS" in text:
        return wrong(
            "broker", text, "connect with TLS: -X security.protocol=SSL, or use the broker's PLAINTEXT listener"
        )
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
    """Checks the descriptor limit of the broker on this machine, which may be lower than ours."""
    limit = None if owner.pid is None else descriptors_of(owner.pid)
    if limit is None or limit >= DESCRIPTORS_MIN:
        return []
    return [wrong("descriptors", f"the broker, {owner}, may open {limit} files only", MORE_DESCRIPTORS)]


async def _addresses(cluster: Cluster, shown: str) -> "tuple[dict[int, BrokerConnection], list[Finding]]":
    """Checks that the advertised addresses of brokers lead to them."""
    brokers = list(cluster.view.brokers.values())
    answers = await asyncio.gather(*(_connection_or_error(cluster, each.node_id) for each in brokers))
    reached, found = {}, []
    for broker, answer in zip(brokers, answers, strict=True):
        if isinstance(answer, ClientError):
            text = f"broker {broker.node_id} sends clients to {broker.address}, which this machine cannot use: {answer}"
            fix = "set advertised.listeners to an address that clients reach"
            if len(brokers) == 1:
                fix += f", such as PLAINTEXT://{shown} which you have just used, or remove it"
            found.append(wrong("advertised", text, f"{fix}; then restart the broker"))
        else:
            reached[broker.node_id] = answer
            found.append(well("advertised", f"broker {broker.node_id} is at {broker.address}, as it says"))
    return reached, found


async def _connection_or_error(cluster: Cluster, node_id: int) -> "BrokerConnection | ClientError":
    try:
        return await cluster.connection(node_id)
    except ClientError as error:
        return error
