"""One replica for unit tests of the raft core: node 1, with replies given by the test."""

from typing import Any

from penstock.model.errors import ErrorCode
from penstock.model.report import Report
from penstock.raft.effects import Answer, Effect, Send
from penstock.raft.events import Answered, Asked, LogSynced, TimePassed
from penstock.raft.messages import Fetch, FetchReply, Vote, VoteReply
from penstock.raft.raft import Raft
from penstock.raft.replicas import ReplicaKey, Voter, VoterSet
from penstock.raft.roles import QuorumState, Role
from penstock.raft.settings import QuorumSettings
from tests.simulation.raft_core.disk import Disk, Entry

KEYS = {node_id: ReplicaKey(node_id, bytes([node_id]) * 16) for node_id in range(1, 6)}


class NoChance:
    def token(self, size_bytes: int) -> bytes:
        return bytes(size_bytes)

    def below(self, end: int) -> int:
        return 0


class LoneReplica:
    """Node 1 of a voter set; the test provides the replies of the other voters."""

    def __init__(self, voters: int = 3, stored: QuorumState | None = None, entries: tuple[Entry, ...] = ()) -> None:
        self.disk = Disk(KEYS[1].directory_id)
        self.disk.log.append_fetched((0, entries), 0)
        self.disk.log.synced_end = self.disk.log.end_offset
        self.now = 0
        self.raft = Raft(
            KEYS[1],
            self.disk.log,
            self.disk.shelf,
            QuorumSettings(fetch_bytes_max=100),
            NoChance(),
            bootstrap=VoterSet(Voter(KEYS[node_id]) for node_id in range(1, voters + 1)),
            stored=stored,
        )
        self.effects = self.raft.start(0)
        self.reports: list[str] = []
        """Names of reported events."""

    def role(self) -> Role:
        return self.raft.role

    def step(self, event: Any) -> list[Effect]:
        effects = self.raft.step(event, self.now)
        self.reports += [effect.kind.name for effect in effects if isinstance(effect, Report)]
        self.effects = [effect for effect in effects if not isinstance(effect, Report)]
        return self.effects

    def wait(self) -> list[Effect]:
        self.now = max(self.now, self.raft.wake_at)
        return self.step(TimePassed())

    def asked(self, request: Any) -> Any:
        """Returns the immediate reply to a request, if any."""
        found = [effect.reply for effect in self.step(Asked("token", request)) if isinstance(effect, Answer)]
        return found[0] if found else None

    def sent(self, kind: type) -> list[Send]:
        return [effect for effect in self.effects if isinstance(effect, Send) and isinstance(effect.request, kind)]

    def elect(self) -> None:
        """Lets node 2 elect this node."""
        while self.role() is not Role.PROSPECTIVE:
            self.wait()
        for _ in range(2):
            number = next(send.number for send in self.sent(Vote) if send.to == 2)
            self.step(Answered(number, VoteReply(ErrorCode.NONE, self.raft.epoch, -1, is_granted=True)))
        assert self.role() is Role.LEADER

    def sync(self) -> list[Effect]:
        self.disk.log.synced_end = self.disk.log.end_offset
        return self.step(LogSynced())

    def fetched(self, node_id: int, offset: int, last_epoch: int | None = None, **rest: Any) -> FetchReply | None:
        epoch = self.raft.epoch
        fetch = Fetch(epoch, KEYS[node_id], offset, epoch if last_epoch is None else last_epoch, 0, 500, 100)
        found: FetchReply | None = self.asked(fetch._replace(**rest))
        return found


def a_vote(epoch: int, candidate: int = 2, last_epoch: int = 0, end_offset: int = 0, **rest: Any) -> Vote:
    vote = Vote(epoch, KEYS[candidate], KEYS[1], last_epoch, end_offset, is_pre_vote=False)
    return vote._replace(**rest)
