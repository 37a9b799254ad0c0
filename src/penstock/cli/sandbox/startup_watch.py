"""Waits for the nodes of a cluster on this machine to start, and reports progress on a terminal."""

import time
from typing import TYPE_CHECKING

from penstock.cli.connection.majority import is_confirmed
from penstock.cli.errors import Failed
from penstock.cli.progress import say

if TYPE_CHECKING:
    from penstock.cli.sandbox.nodes import LocalCluster
    from penstock.client.admin.majority import QuorumProbe

PAUSE_S = 0.1
ANSWER_MS = 3_000


def seen(cluster: "LocalCluster") -> tuple[list[int], int, list[int]]:
    """Nodes that serve, as each reports itself, the leader of the quorum, and its voters; none without a majority."""
    answering, probe = answers(cluster)
    if probe.quorum is None or not is_confirmed(probe):
        return [], -1, []
    return answering, probe.quorum.leader_id, [each.node_id for each in probe.quorum.voters]


def answers(cluster: "LocalCluster", timeout_ms: int = ANSWER_MS) -> "tuple[list[int], QuorumProbe]":
    """Nodes that answer and list themselves as brokers, and a probe of the quorum. Takes no longer than the limit."""
    import asyncio

    from penstock.client.admin.quorum_probe import probe_quorum
    from penstock.client.bootstrap import parse_address
    from penstock.client.client import Client
    from penstock.client.errors import ClientError

    async def lists_itself(node_id: int, address: str) -> bool:
        async with Client(address, client_id="penstock-cli", timeout_ms=timeout_ms) as client:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    found = await client.admin.describe_cluster(timeout_ms=1)
            except (ClientError, OSError, TimeoutError):
                return False
            return node_id in [broker.node_id for broker in found.brokers]

    async def ask_all() -> "tuple[QuorumProbe, list[bool]]":
        running = [each.address for each in cluster.nodes if cluster.pid(each.node_id) is not None]
        controllers = {
            parse_address(each.controller_address): each.node_id for each in cluster.nodes if each.controller_address
        }
        async with Client(running or cluster.bootstrap, client_id="penstock-cli", timeout_ms=timeout_ms) as client:
            return await asyncio.gather(
                probe_quorum(client.cluster, timeout_ms, controllers),
                asyncio.gather(*(lists_itself(each.node_id, each.address) for each in cluster.nodes)),
            )

    probe, found = asyncio.run(ask_all())
    return [each.node_id for each, is_there in zip(cluster.nodes, found, strict=True) if is_there], probe


def wait_until_up(cluster: "LocalCluster", deadline: float) -> None:
    """Returns when all nodes serve; fails when one has stopped, or the deadline has passed."""
    while True:
        for each in cluster.nodes:
            if cluster.pid(each.node_id) is None:
                said = cluster.last_words(each.node_id) or "it said nothing"
                log = cluster.home(each.node_id) / "log"
                raise Failed(f"node {each.node_id} has stopped: {said} (see {log})")
        serving, _, _ = seen(cluster)
        missing = [each.node_id for each in cluster.nodes if each.node_id not in serving]
        if not missing:
            return
        if time.monotonic() > deadline:
            raise Failed(f"{numbered(missing)} did not come up in time: see {cluster.home(missing[0]) / 'log'}")
        say(f"Waiting for {numbered(missing)}.")
        time.sleep(PAUSE_S)


def numbered(node_ids: list[int]) -> str:
    """`nodes 1, 2`."""
    return f"node{'s' * (len(node_ids) != 1)} {', '.join(map(str, node_ids))}"
