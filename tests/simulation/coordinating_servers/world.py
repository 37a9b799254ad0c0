"""Worlds of whole servers that coordinate groups, by seed: three real nodes, members of both protocols, committers.

Some clients only commit, each for a group of its own; classic members share a topic and rebalance whenever one joins or
leaves; members of a KIP-848 group share it without stopping. Meanwhile the nemesis kills, power-cuts, pauses and
partitions the nodes, and in half of the worlds cuts the power of all at once. Invariants: a fetched offset is that of a
commit that no acknowledged commit has followed; in one generation a partition is assigned to one member; a member of a
KIP-848 group is assigned no partition that another has and was told within its session. When the faults end, every
group goes on, except groups whose partition has no leader: a node that lost power may not know its own last
registration, and is then not trusted.
"""

import asyncio
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, NamedTuple

from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.ports import ClientPorts
from penstock.coordinator.placement import OFFSETS_TOPIC
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.settings import CannotStart, NodeSettings
from penstock.simulator.nemesis import Nemesis
from penstock.simulator.node import Ports
from penstock.simulator.world import World
from tests.simulation.coordinating_servers.members import Asking, ClassicMember, ConsumerMember
from tests.simulation.replicating_servers import world as replicas_world
from tests.simulation.replicating_servers.world import Keeper
from tests.simulation.three_servers import world as servers_world
from tests.simulation.three_servers.world import LOOK_S, NODES, PORT, Book, Broken, options_for, silence

TOPIC: Final = "orders"
PARTITIONS: Final = 3
SHARDS: Final = 2
COMMITTERS: Final = ("committer-1", "committer-2")
CLASSIC: Final = ("classic-1", "classic-2", "classic-3")
CONSUMERS: Final = ("consumer-1", "consumer-2")
TORMENT_S: Final = 10.0
REST_S: Final = 8.0
END_S: Final = 22.0
SESSION_MS: Final = 3_000
HELD_S: Final = SESSION_MS / 1000 / 2
"""Shorter than a session, since clocks may drift, though not by that much."""


@dataclass
class Commit:
    """A committed offset and its times; `answered_s` is None if there was no response."""

    offset: int
    sent_s: float
    answered_s: float | None = None


@dataclass
class Pages:
    """All commits of one group to one partition, to check fetched offsets against."""

    name: str
    commits: list[Commit] = field(default_factory=list)

    def begin(self, offset: int, now_s: float) -> Commit:
        self.commits.append(commit := Commit(offset, now_s))
        return commit

    def read(self, offset: int, asked_s: float) -> None:
        """Checks an offset that was fetched by a request sent then."""
        known = [each for each in self.commits if each.answered_s is not None and each.answered_s <= asked_s]
        last_sent_s = max((each.sent_s for each in known), default=-1.0)
        for each in self.commits:
            if each.offset == offset and (each.answered_s is None or each.answered_s >= last_sent_s):
                return
        if offset != -1 or known:
            latest = max(known, key=lambda each: each.sent_s, default=None)
            raise Broken(f"NoAcknowledgedCommitLost: {self.name} was told {offset}, though {latest} was acknowledged")


class Notes:
    """The state that all clients of a world share."""

    def __init__(self) -> None:
        self.pages: dict[tuple[str, int], Pages] = {}
        self.generations: dict[int, dict[int, str]] = {}
        """Of the classic group: the owner of each partition, by generation."""
        self.held: dict[int, tuple[str, float]] = {}
        """Of the KIP-848 group: the owner of each partition, and when it last asked."""
        self.offset = 0
        self.acknowledged = 0
        self.meetings = 0
        self.breach = ""

    def page(self, group_id: str, index: int) -> Pages:
        return self.pages.setdefault((group_id, index), Pages(f"{group_id}, partition {index},"))

    def give(self, generation: int, member_id: str, assigned: tuple[int, ...]) -> None:
        self.meetings += 1
        given = self.generations.setdefault(generation, {})
        for index in assigned:
            if given.setdefault(index, member_id) != member_id:
                raise Broken(
                    f"OneMemberPerPartition: {index} is given to {given[index]} and {member_id} in {generation}"
                )

    def hold(self, name: str, assigned: list[int], sent_s: float, now_s: float) -> None:
        for index in [index for index, (holder, _) in self.held.items() if holder == name]:
            del self.held[index]
        for index in assigned:
            holder, told_s = self.held.get(index, (name, 0.0))
            if holder != name and now_s < told_s + HELD_S:
                raise Broken(f"OneMemberPerPartition: {index} is given to {name}, and {holder} has it")
            self.held[index] = (name, sent_s)


class GroupClient:
    """A client that repeats its turn whatever happens."""

    def __init__(self, name: str, notes: Notes, random: Random) -> None:
        self.name = name
        self.notes = notes
        self.random = random
        self.is_working = True
        self.is_done = False
        self.turns = 0
        """The number of successful commits."""

    async def run(self, ports: Ports) -> None:
        options = ClientPorts(ports.network, ports.clock, ports.entropy)
        bootstrap = [f"node-{node_id}:{PORT}" for node_id in NODES]
        self.random.shuffle(bootstrap)
        cluster = Cluster(bootstrap, ports=options, request_timeout_ms=2_000, connect_timeout_ms=500)
        await self._make_topic(cluster)
        asking = self.asking(cluster)
        while self.is_working:
            try:
                await self.turn(asking)
            except ClientError:
                asking.look_elsewhere()
                await asyncio.sleep(0.05)
            except Broken as breach:
                self.notes.breach = str(breach)
                raise
            await asyncio.sleep(self.random.uniform(0.05, 0.3))
        await cluster.close()
        self.is_done = True

    async def _make_topic(self, cluster: Cluster) -> None:
        while True:
            try:
                await Admin(cluster).create_topic(TOPIC, PARTITIONS, 3)
                return
            except ClientError as error:
                if "TOPIC_ALREADY_EXISTS" in str(error):
                    return
                await asyncio.sleep(0.1)

    @property
    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def asking(self, cluster: Cluster) -> Asking:
        raise NotImplementedError

    async def turn(self, asking: Asking) -> None:
        raise NotImplementedError

    async def commit(self, asking: Asking, indexes: list[int], generation: int = -1, member_id: str = "") -> None:
        """Commits the next offset, which no other client commits."""
        self.notes.offset += 1
        offset = self.notes.offset
        begun = {index: self.notes.page(asking.group_id, index).begin(offset, self.now_s) for index in indexes}
        codes = await asking.commit(TOPIC, dict.fromkeys(indexes, offset), generation, member_id)
        for index, code in codes.items():
            if code is ErrorCode.NONE:
                begun[index].answered_s = self.now_s
                self.notes.acknowledged += 1
                self.turns += 1
            else:
                self.look(asking, code)

    async def check(self, asking: Asking, indexes: list[int]) -> None:
        asked_s = self.now_s
        code, found = await asking.committed(TOPIC, indexes)
        if code is not ErrorCode.NONE:
            self.look(asking, code)
            return
        for index, offset in found.items():
            self.notes.page(asking.group_id, index).read(offset, asked_s)

    def look(self, asking: Asking, code: ErrorCode) -> None:
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            asking.look_elsewhere()


class Committer(GroupClient):
    """Commits for a group of its own, and checks the commit."""

    def asking(self, cluster: Cluster) -> Asking:
        return Asking(cluster, self.name, timeout_ms=2_000)

    async def turn(self, asking: Asking) -> None:
        index = self.random.randrange(PARTITIONS)
        await self.commit(asking, [index])
        await self.check(asking, [index])


class Classic(GroupClient):
    """A member that joins, commits, and sometimes leaves."""

    def asking(self, cluster: Cluster) -> ClassicMember:
        return ClassicMember(cluster, "team", TOPIC, PARTITIONS, timeout_ms=5_000)

    async def turn(self, asking: Asking) -> None:
        assert isinstance(asking, ClassicMember)
        code = await self._step(asking)
        self.look(asking, code)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            asking.member_id, asking.generation = "", -1
        if code is not ErrorCode.NONE:
            asking.generation = -1

    async def _step(self, member: ClassicMember) -> ErrorCode:
        if member.generation < 0:
            code = await member.join()
            if code is ErrorCode.NONE:
                self.notes.give(member.generation, member.member_id, member.assigned)
                await self.check(member, list(member.assigned))
            else:
                member.generation = -1
            return code
        if self.random.random() < 0.04:
            await member.leave()
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.random.random() < 0.5 and member.assigned:
            await self.commit(member, list(member.assigned), member.generation, member.member_id)
        return await member.heartbeat()


class Consumer(GroupClient):
    """A member of the KIP-848 group."""

    def asking(self, cluster: Cluster) -> ConsumerMember:
        return ConsumerMember(cluster, "crew", TOPIC, self.name, timeout_ms=2_000)

    async def turn(self, asking: Asking) -> None:
        assert isinstance(asking, ConsumerMember)
        member, sent_s = asking, self.now_s
        if self.random.random() < 0.03 and member.epoch > 0:
            self.notes.hold(self.name, [], sent_s, sent_s)
            await member.leave()
            return
        code = await member.heartbeat()
        self.look(asking, code)
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            member.drop_all()
        elif code is not ErrorCode.NONE:
            return
        indexes = [index for _, index in member.assigned]
        self.notes.hold(self.name, indexes, sent_s, self.now_s)
        if indexes and member.epoch > 0:
            await self.commit(member, indexes, member.epoch, member.member_id)


class Run(NamedTuple):
    """The result of a world."""

    acknowledged: int
    meetings: int
    epochs: int
    events: int
    counts: dict[str, int]
    trace_hash: str


def settings_for(node_id: int) -> NodeSettings:
    plain = replicas_world.settings_for(node_id)
    given = {
        "offsets.topic.num.partitions": str(SHARDS),
        "min.insync.replicas": "2",
        "group.initial.rebalance.delay.ms": "300",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": str(SESSION_MS),
        "group.consumer.heartbeat.interval.ms": "300",
        "group.consumer.assignment.interval.ms": "0",
    }
    return replace(plain, broker=BrokerSettings({**plain.broker.static, **given}))


class Theatre:
    """One world from its beginning to its end."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.book = Book()
        self.notes = Notes()
        self.servers = {node_id: Keeper(node_id, self.book, settings_for(node_id)) for node_id in NODES}
        self.names = {node_id: f"node-{node_id}" for node_id in NODES}
        for node_id, name in self.names.items():
            world.add(name, self.servers[node_id].live, tolerates=(OSError, CannotStart, ProtocolError))
        kinds: dict[str, type[GroupClient]] = {
            **dict.fromkeys(COMMITTERS, Committer),
            **dict.fromkeys(CLASSIC, Classic),
            **dict.fromkeys(CONSUMERS, Consumer),
        }
        self.clients = {name: kind(name, self.notes, world.streams.stream(name)) for name, kind in kinds.items()}
        for name, client in self.clients.items():
            world.add(name, client.run, tolerates=(Broken,))
        self.nemesis = Nemesis(world, list(self.names.values()), list(self.clients))
        self._epochs: set[tuple[int, int]] = set()

    def play(self) -> Run:
        world = self.world
        for name in (*self.names.values(), *self.clients):
            world.start(name)
        self._run(2.0)
        self.nemesis.torment()
        self._run(TORMENT_S - 2.0)
        is_dark = world.streams.stream("blackout").random() < 0.5
        if is_dark:
            for name in self.names.values():
                world.cut_power(name)
        self.nemesis.calm()
        world.network.settings.loss = world.network.settings.straggler = 0.0
        world.options.slow_sync = 0.0
        self._run(REST_S)
        before = {name: client.turns for name, client in self.clients.items()}
        self._run(END_S - TORMENT_S - REST_S - 1.0)
        self._check_progress(before)
        for client in self.clients.values():
            client.is_working = False
        self._run(1.0)
        if self.book.failures:
            raise Broken(f"a node went out: {self.book.failures}")
        counts = {
            servers_world.FAULTS: self.nemesis.faults,
            "power cuts of all nodes at once": int(is_dark),
        }
        return Run(
            self.notes.acknowledged,
            self.notes.meetings,
            len(self._epochs),
            world.loop.events,
            counts,
            world.trace_hash,
        )

    def _check_progress(self, before: dict[str, int]) -> None:
        for names in ([COMMITTERS[0]], [COMMITTERS[1]], CLASSIC, CONSUMERS):
            if all(self.clients[name].turns == before[name] for name in names):
                raise Broken(f"Convergence: nobody of {names} commits, long after all was mended")

    def _run(self, seconds: float) -> None:
        end_s = self.world.loop.time() + seconds
        while self.world.loop.time() < end_s:
            self.world.run(min(LOOK_S, max(0.001, end_s - self.world.loop.time())))
            for server in self.servers.values():
                server.look()
                if server.node is not None:
                    topic = server.node.member.controller.image.topics.get(OFFSETS_TOPIC)
                    for index, placed in ({} if topic is None else topic.partitions).items():
                        self._epochs.add((index, placed.leader_epoch))
            for breach in (*self.book.breaches, self.notes.breach):
                if breach:
                    raise Broken(breach)


def run_seed(seed: int, *, story: list[str] | None = None) -> Run:
    """Runs one world of twenty-two virtual seconds."""
    with silence(), World(seed, options_for(seed), keeps_trace=story is not None) as world:
        if story is not None:
            world.trace.kept = story
        return Theatre(world).play()
