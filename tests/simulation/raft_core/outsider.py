"""An outsider in a world of raft cores: a host that reaches the controllers' listeners but is no node of the cluster.

It sends single requests in the wire's own messages: with the id of another cluster or none, to a voter other than the
receiver, or with an epoch that no election explains. None of them may change anything at the receiver.
"""

from random import Random
from typing import Any, Final

from penstock.model.epochs import INT32_EPOCH_MAX
from penstock.raft.events import Asked
from penstock.raft.messages import BeginEpoch, EndEpoch, Request, Vote
from penstock.raft.replicas import ReplicaKey, VoterSet
from penstock.server.quorum import quorum_messages
from penstock.wire.types import ZERO_UUID
from tests.simulation.kit.invariants import broken
from tests.simulation.raft_core.world import Node, World

CLUSTER: Final = "simulated"
OUTSIDER: Final = ReplicaKey(77, b"o" * 16)


class Outsider:
    """Sends requests as often as the options demand; its own random stream leaves the rest of the world unchanged."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random: Random = world.streams.stream("outsider")

    def begin(self) -> None:
        if self._world.options.outsider_every_ms:
            self._wait()

    def _wait(self) -> None:
        self._world.after(self._random.expovariate(1 / self._world.options.outsider_every_ms), self._strike)

    def _strike(self) -> None:
        node = self._random.choice(list(self._world.nodes.values()))
        if node.raft is not None and node.paused is None:
            kind = self._random.choice(("epoch", "cluster", "key"))
            getattr(self, f"_with_wrong_{kind}")(node)
            self._world.counts[f"outsider, {kind}"] += 1
        self._wait()

    def _with_wrong_epoch(self, node: Node) -> None:
        assert node.raft is not None
        least = node.raft.epoch + node.raft.replica.settings.epochs_ahead_max + 1
        epoch = self._random.choice((least, INT32_EPOCH_MAX, self._random.randrange(least, INT32_EPOCH_MAX + 1)))
        self._send(node, self._request(epoch, node.key), CLUSTER)

    def _with_wrong_cluster(self, node: Node) -> None:
        self._send(node, self._request(self._near(node), node.key), self._random.choice((None, "", "another")))

    def _with_wrong_key(self, node: Node) -> None:
        wrong = [
            ReplicaKey(node.node_id, b"x" * 16),
            ReplicaKey(node.node_id + 1, node.disk.directory_id),
            ReplicaKey(-1),
        ]
        if self._is_known_by_directory(node):
            wrong += [ReplicaKey(node.node_id, ZERO_UUID)] * 3
        self._send(node, self._request(self._near(node), self._random.choice(wrong)), CLUSTER)

    def _near(self, node: Node) -> int:
        assert node.raft is not None
        return node.raft.epoch + self._random.randrange(1, 1_000)

    def _is_known_by_directory(self, node: Node) -> bool:
        """Whether the last voter set that the node holds as committed names it with its directory."""
        assert node.raft is not None
        committed = self._world.checks.committed[: node.raft.high_watermark]
        sets = [entry.content for entry in committed if isinstance(entry.content, VoterSet)]
        named = sets[-1].by_id.get(node.node_id) if sets else None
        return named is not None and named.key == node.key

    def _request(self, epoch: int, to: ReplicaKey) -> Request:
        kind = self._random.randrange(4)
        if kind == 0:
            return BeginEpoch(epoch, OUTSIDER.node_id, to)
        if kind == 1:
            return EndEpoch(epoch, OUTSIDER.node_id, (ReplicaKey(99, b"y" * 16), to))
        return Vote(epoch, OUTSIDER, to, INT32_EPOCH_MAX, 1 << 40, is_pre_vote=kind == 2)

    def _send(self, node: Node, request: Request, cluster_id: str | None) -> None:
        message, _ = quorum_messages.request_to_wire(request, CLUSTER)
        assert isinstance(message, quorum_messages.FromPeer)
        message.cluster_id = cluster_id
        before = _state(node)
        try:
            asked = quorum_messages.request_from_wire(message, CLUSTER)
        except quorum_messages.OtherCluster:
            return
        node.take(Asked(lambda _reply: None, asked))
        if _state(node) != before:
            broken(
                "OutsidersChangeNothing",
                f"{node} went from {before} to {_state(node)} by {request} for cluster {cluster_id}",
            )


def _state(node: Node) -> tuple[Any, ...]:
    raft = node.raft
    assert raft is not None
    log = node.disk.log
    return raft.replica.state, raft.role, raft.high_watermark, log.start_offset, log.end_offset, raft.voters.ids
