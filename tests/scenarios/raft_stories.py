"""Scenarios of the metadata quorum: the transcripts `raft/*.txt` hold commands and the events that follow.

A line that begins with ">" is a command, one with "#" a remark; the others are messages and actions of the raft cores,
with the second. There is no randomness in these worlds: a message takes 1 ms, a sync 0.5 ms, and of several nodes that
wait equally long the one with the smallest id acts first. `python -m tests.scenarios.raft_stories` writes all
transcripts again; then read the difference.
"""

import sys
from pathlib import Path
from random import Random
from typing import Final

from penstock.raft.events import Resigning
from penstock.raft.messages import AddVoter, BeginEpoch, EndEpoch, RemoveVoter, Reply, Request, Vote
from penstock.raft.replicas import ReplicaKey, Voter
from penstock.raft.roles import Role
from tests.scenarios.transcripts import Teller, retold, write_anew
from tests.simulation.raft_core.options import CALM
from tests.simulation.raft_core.world import Node, World, show, show_entry

FOLDER: Final = Path(__file__).parent / "raft"
PATIENCE_MS: Final = 20_000.0


class Ordered:
    """Entropy without randomness: waits differ by node, and nothing else."""

    def __init__(self, _random: Random, node_id: int) -> None:
        self._share = node_id / 10

    def token(self, size_bytes: int) -> bytes:
        return bytes(size_bytes)

    def below(self, end: int) -> int:
        return int(end * self._share)


class Story(Teller):
    """Carries out commands in a world and records the events."""

    def __init__(self, voters: int = 3, spares: int = 0) -> None:
        super().__init__()
        options = CALM._replace(voters=voters, spares=spares)
        self.world = World(0, options, entropy_factory=Ordered, story=self._take_down)
        self.world.is_calm = True

    def node(self, node_id: str) -> Node:
        return self.world.nodes[int(node_id)]

    # --- commands -------------------------------------------------------------------------------------------------

    def do_start(self, *node_ids: str) -> None:
        for node_id in node_ids:
            self.node(node_id).start()

    def do_crash(self, *node_ids: str) -> None:
        for node_id in node_ids:
            self.node(node_id).crash()

    def do_wipe(self, node_id: str) -> None:
        self.node(node_id).wipe()

    def do_pause(self, node_id: str) -> None:
        self.node(node_id).pause()

    def do_resume(self, node_id: str) -> None:
        self.node(node_id).resume()

    def do_cut(self, *links: str) -> None:
        """`1>2` stops messages from 1 to 2; `1-2` stops both directions."""
        for link in links:
            one, sign, other = link[0], link[1], link[2]
            self.world.cut_links[int(one), int(other)] = 1
            if sign == "-":
                self.world.cut_links[int(other), int(one)] = 1

    def do_heal(self) -> None:
        self.world.cut_links.clear()

    def do_append(self, node_id: str, *values: str) -> None:
        for value in values:
            self.node(node_id).append(int(value))

    def do_snapshot(self, *node_ids: str) -> None:
        for node_id in node_ids:
            self.node(node_id).take_snapshot()

    def do_add(self, leader_id: str, node_id: str) -> None:
        self._ask(leader_id, AddVoter(Voter(self.node(node_id).key)))

    def do_remove(self, leader_id: str, node_id: str) -> None:
        leader = self.node(leader_id)
        assert leader.raft is not None
        self._ask(leader_id, RemoveVoter(leader.raft.voters.key_of(int(node_id))))

    def do_outsider(self, kind: str, node_id: str, epoch: str, directory: str = "") -> None:
        """A host that is no node sends a request with a log that is far ahead, perhaps for another directory."""
        node = self.node(node_id)
        key = node.key if not directory else ReplicaKey(node.node_id, directory.encode().ljust(16))
        requests: dict[str, Request] = {
            "vote": Vote(int(epoch), ReplicaKey(77), key, int(epoch), 1_000, is_pre_vote=False),
            "begin": BeginEpoch(int(epoch), 77, key),
            "end": EndEpoch(int(epoch), 77, (key,)),
        }
        self._ask(node_id, requests[kind])

    def _ask(self, leader_id: str, request: Request) -> None:
        leader = self.node(leader_id)

        def tell(reply: Reply) -> None:
            self.world.tell(leader, f"answers: {show(reply)}")

        self.world.ask(leader, request, tell)

    def do_resign(self, node_id: str) -> None:
        self.node(node_id).take(Resigning())

    def do_run(self, duration_ms: str) -> None:
        self.world.run(self.world.time_ms + float(duration_ms))

    def do_until(self, node_id: str, *what: str) -> None:
        """`until 1 is leader`, `until 2 has committed 5`."""
        node = self.node(node_id)

        def has_happened() -> bool:
            raft = node.raft
            assert raft is not None
            return raft.role is Role(what[1]) if what[0] == "is" else raft.high_watermark >= int(what[2])

        self.world.run(self.world.time_ms + PATIENCE_MS, stop=has_happened)
        assert has_happened(), f"{node} never {' '.join(what)}"

    def do_show(self) -> None:
        for node in self.world.nodes.values():
            self.lines.append(f"    {node}: {portrait(node)}")


def portrait(node: Node) -> str:
    log = node.disk.log
    start = f"from {log.start_offset}: " if log.start_offset else ""
    entries = start + " ".join(show_entry(entry) for entry in log.entries)
    raft = node.raft
    if raft is None:
        return f"down, log {entries or 'empty'}"
    leader = f" of {raft.leader_id}" if raft.leader_id not in (-1, node.node_id) else ""
    return f"{raft.role.value}{leader} in epoch {raft.epoch}, committed {raft.high_watermark}, log {entries or 'empty'}"


def retell(text: str) -> str:
    """The transcript of a text's commands with the present code: `quorum`, number of voters, number of spares."""
    return retold(text, lambda voters, spares: Story(int(voters), int(spares)))


if __name__ == "__main__":
    sys.exit(write_anew(FOLDER, retell))
