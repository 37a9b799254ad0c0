"""Watching the nodes of a cluster on this machine come up, and telling whoever watches."""

import sys
import time
from typing import TYPE_CHECKING

import typer

from penstock.cli.failing import Failed

if TYPE_CHECKING:
    from penstock.cli.cluster_nodes import LocalCluster
    from penstock.client.quorum import QuorumDescription

PAUSE_S = 0.1
ANSWER_MS = 3_000


def seen(cluster: "LocalCluster") -> tuple[list[int], int, list[int]]:
    """Nodes that serve, as each says of itself, who leads the quorum, and who votes in it."""
    import asyncio

    from penstock.client.client import Client
    from penstock.client.errors import ClientError

    async def ask(node_id: int, address: str) -> "tuple[bool, QuorumDescription | None]":
        try:
            async with Client(address, client_id="penstock-cli", timeout_ms=ANSWER_MS) as client:
                await client.cluster.refresh(timeout_ms=1)
                serves = node_id in [broker.node_id for broker in (await client.admin.describe_cluster()).brokers]
                return serves, await client.admin.describe_quorum()
        except (ClientError, OSError):
            return False, None

    async def ask_all() -> "list[tuple[bool, QuorumDescription | None]]":
        return await asyncio.gather(*(ask(each.node_id, each.address) for each in running))

    running = [each for each in cluster.nodes if cluster.pid(each.node_id) is not None]
    found = asyncio.run(ask_all())
    serving = [each.node_id for each, (serves, _) in zip(running, found, strict=True) if serves]
    quorum = next((said for _, said in found if said is not None), None)
    if quorum is None:
        return serving, -1, []
    return serving, quorum.leader_id, [each.node_id for each in quorum.voters]


def wait_until_up(cluster: "LocalCluster", deadline: float) -> None:
    """Returns when all nodes serve; fails when one has stopped, or the time is over."""
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


def say(sentence: str) -> None:
    """For whoever watches; the same sentence once."""
    if sys.stderr.isatty() and sentence != _said.get("last"):
        typer.echo(sentence, err=True)
        _said["last"] = sentence


_said: dict[str, str] = {}
