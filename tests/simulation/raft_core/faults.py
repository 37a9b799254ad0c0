"""Faults in a world of raft cores, and its operators: appends, changes of voters, repairs."""

from random import Random
from typing import Final, NamedTuple

from penstock.raft.events import Resigning
from penstock.raft.messages import AddVoter, RemoveVoter, UpdateVoter
from penstock.raft.replicas import Endpoint, ReplicaKey, Voter, VoterSet
from penstock.raft.roles import Role
from tests.simulation.raft_core.options import Options, draw_options
from tests.simulation.raft_core.outsider import Outsider
from tests.simulation.raft_core.world import Node, World, trace_of

TORMENT_MS: Final = 42_000.0
APPENDS_END_MS: Final = 56_000.0
END_MS: Final = 60_000.0


class Run(NamedTuple):
    """The result of a world."""

    seed: int
    events: int
    committed: int
    acknowledged: int
    epochs: int
    counts: dict[str, int]
    moves: frozenset[tuple[Role, Role]]
    trace_hash: int


class Misfortune:
    """Injects faults until `calm`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random: Random = world.streams.stream("faults")
        self._values = 0
        self._people: Random = world.streams.stream("people")

    def begin(self) -> None:
        options = self._world.options
        for node in self._world.nodes.values():
            self._world.at(self._random.choice((0.0, 0.0, 3_000.0)) * self._random.random(), self._start, node)
        self._world.after(options.append_every_ms, self._append)
        self._world.vote_granted.connect(self._ambush)
        if options.faults:
            self._world.after(self._interval(), self._strike)

    def calm(self) -> None:
        """Heals all faults except clock drift."""
        world = self._world
        world.is_calm = True
        world.cut_links.clear()
        world.options = world.options._replace(delay_ms=1.0, sync_ms=0.5, append_every_ms=500.0)
        world.tell(None, "calms down")
        for node in world.nodes.values():
            node.resume()
            self._start(node)
        world.after(1_000.0, self._repair)

    # --- operators ------------------------------------------------------------------------------------------------

    def _append(self) -> None:
        world, random = self._world, self._people
        leaders = world.leaders()
        if leaders:
            node = leaders[-1] if random.random() < 0.8 else random.choice(leaders)
            for _ in range(random.choice((1, 1, 1, 5))):
                self._values += 1
                node.append(self._values)
        if world.time_ms < APPENDS_END_MS:
            world.after(2 * random.random() * world.options.append_every_ms, self._append)

    def _repair(self) -> None:
        """After `calm`: replaces voters whose disk is lost."""
        self._change_voters()
        if self._world.time_ms < APPENDS_END_MS:
            self._world.after(500.0, self._repair)

    def _change_voters(self) -> None:
        leaders = self._world.leaders()
        if not leaders:
            return
        leader = leaders[-1]
        if leader.paused is not None:  # it would make the change later, which could then be one too many
            return
        assert leader.raft is not None
        random, voters = self._people, leader.raft.voters
        gone = [key for key in map(voters.key_of, voters.ids) if key in self._world.checks.wiped]
        if gone:  # while one is gone, removing another could be one too many
            self._world.ask(leader, RemoveVoter(gone[0]))
            return
        others = [node for node in self._world.nodes.values() if node.node_id not in voters.by_id]
        if self._world.is_calm:
            if others and len(voters) < 3:
                self._world.ask(leader, AddVoter(Voter(others[0].key)))
            return
        choice = random.random()
        if others and choice < 0.5:
            self._world.ask(leader, AddVoter(Voter(random.choice(others).key), waits_for_commit=choice < 0.4))
        elif choice < 0.9:
            self._world.ask(leader, RemoveVoter(voters.key_of(random.choice(voters.ids))))
        else:
            key = voters.key_of(random.choice(voters.ids))
            port = random.randrange(1, 1000)
            self._world.ask(leader, UpdateVoter(Voter(key, (Endpoint("CONTROLLER", "host", port),))))

    def _start(self, node: Node) -> None:
        if node.raft is None:
            node.start()

    # --- faults ---------------------------------------------------------------------------------------------------

    def _interval(self) -> float:
        return self._random.expovariate(1 / self._world.options.fault_every_ms)

    def _strike(self) -> None:
        if self._world.is_calm:
            return
        kind = self._random.choice(self._world.options.faults)
        if getattr(self, "_" + kind.replace(" ", "_").replace("-", "_"))():
            self._world.counts[kind] += 1
        self._world.after(self._interval(), self._strike)

    def _someone(self) -> Node:
        """A random node; the leader more often, since faults do most harm there."""
        leaders = self._world.leaders()
        if leaders and self._random.random() < 0.4:
            return leaders[-1]
        return self._random.choice(list(self._world.nodes.values()))

    def _crash(self) -> bool:
        return self._crash_node(self._someone())

    def _crash_node(self, node: Node) -> bool:
        if node.raft is None:
            return False
        node.crash()
        self._world.after(self._random.choice((50.0, 1_000.0, 8_000.0)) * self._random.random(), self._start, node)
        return True

    def _ambush(self, node: Node) -> None:
        """Cuts the power of a node soon after it has granted a vote, and restores it soon."""
        if not self._world.is_calm and self._random.random() < self._world.options.ambush:
            self._world.after(self._random.random() * self._world.options.sync_ms, self._ambushed, node, node.life)

    def _ambushed(self, node: Node, life: int) -> None:
        if node.life == life and node.raft is not None:
            self._world.counts["ambush"] += 1
            node.crash()
            self._world.after(self._random.random() * 20.0, self._start, node)

    def _leap(self) -> bool:
        """Moves all clocks forward, so that the time-outs of all nodes expire at once."""
        ahead_ms = self._random.randrange(5_000)
        for node in self._world.nodes.values():
            node.leap(ahead_ms)
        return True

    def _power_cut(self) -> bool:
        return bool([node for node in self._world.nodes.values() if self._crash_node(node)])

    def _partition(self) -> bool:
        """Isolates one node, or separates two groups, or two groups that only share a bridge."""
        nodes = list(self._world.nodes)
        self._random.shuffle(nodes)
        size = self._random.choice((1, len(nodes) // 2))
        one, other = nodes[:size], nodes[size:]
        if len(other) > 2 and self._random.random() < 0.3:
            other = other[1:]  # without the bridge
        links = [(a, b) for a in one for b in other]
        self._cut([*links, *((b, a) for a, b in links)])
        return bool(links)

    def _one_way_cut(self) -> bool:
        victim = self._someone().node_id
        others = [node_id for node_id in self._world.nodes if node_id != victim and self._random.random() < 0.8]
        is_deaf = self._random.random() < 0.5
        self._cut([(other, victim) if is_deaf else (victim, other) for other in others])
        return bool(others)

    def _cut(self, links: list[tuple[int, int]]) -> None:
        world = self._world
        world.tell(None, f"cuts {links}")
        world.cut_links.update(links)
        world.after(self._random.choice((500.0, 4_000.0, 12_000.0)) * self._random.random(), self._heal, links)

    def _heal(self, links: list[tuple[int, int]]) -> None:
        if not self._world.is_calm:
            self._world.tell(None, f"heals {links}")
            self._world.cut_links.subtract(links)

    def _pause(self) -> bool:
        node = self._someone()
        if node.raft is None or node.paused is not None:
            return False
        node.pause()
        wait_ms = self._random.choice((200.0, 3_000.0, 10_000.0)) * self._random.random()
        self._world.after(wait_ms, self._resume, node, node.life)
        return True

    def _resume(self, node: Node, life: int) -> None:
        if node.life == life:
            node.resume()

    def _voters(self) -> bool:
        for _ in range(self._random.choice((1, 1, 3))):  # the first of several is not committed yet
            self._change_voters()
        return True

    def _resign(self) -> bool:
        for node in self._world.leaders():
            node.take(Resigning())
        return True

    def _wipe(self) -> bool:
        """Wipes a disk, within what the quorum survives: a majority of every voter set in use keeps its disks."""
        node = self._someone()
        gone = {*self._world.checks.wiped, node.key}
        if not all(_survives(voters, gone) for voters in self._voter_sets()):
            return False
        node.wipe()
        self._world.after(2_000.0 * self._random.random(), self._start, node)
        return True

    def _voter_sets(self) -> list[VoterSet]:
        nodes = self._world.nodes.values()
        sets = [self._world.bootstrap, self._world.checks.committing_voters]
        for node in nodes:
            if node.raft is not None:
                sets.append(node.raft.voters)
            else:
                sets += [found.voters for found in node.disk.log.voter_sets()]
        return sets


def _survives(voters: VoterSet, gone: set[ReplicaKey]) -> bool:
    left = sum(key not in gone for key in map(voters.key_of, voters.ids))
    return left >= voters.majority or not voters.ids


def run_seed(seed: int, *, options: Options | None = None, story: list[str] | None = None) -> Run:
    """Runs a whole world; raises the first failure."""
    drawn = options if options is not None else draw_options(seed)
    world = World(seed, drawn, story=story.append if story is not None else None)
    misfortune = Misfortune(world)
    misfortune.begin()
    Outsider(world).begin()
    world.run(TORMENT_MS)
    misfortune.calm()
    world.run(END_MS)
    world.checks.end()
    return Run(
        seed,
        world.events,
        len(world.checks.committed),
        world.checks.acknowledged,
        len(world.checks.leaders),
        dict(world.counts),
        frozenset(world.moves),
        trace_of(world),
    )
