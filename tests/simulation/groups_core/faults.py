"""Faults in a world of groups: of brokers, of the log, of consumers."""

from random import Random
from typing import Final, NamedTuple

from penstock.coordinator.events import Elected, Resigned, TimePassed
from penstock.coordinator.requests import Ask
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from tests.simulation.groups_core.clients import Classic, Client, Modern
from tests.simulation.groups_core.options import Options, draw_options
from tests.simulation.groups_core.world import BROKERS, Broker, World, gap

TORMENT_MS: Final = 38_000.0
END_MS: Final = 60_000.0


class Run(NamedTuple):
    """The result of a world."""

    seed: int
    events: int
    batches: int
    acknowledged: int
    counts: dict[str, int]
    trace_hash: int


class Misfortune:
    """Injects faults until `calm`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random: Random = world.streams.stream("faults")
        self._people: Random = world.streams.stream("people")
        self._outages: Random = world.streams.stream("outages")
        self._spares: list[Client] = []

    def begin(self) -> None:
        world, options = self._world, self._world.options
        for group, kind in enumerate(options.groups):
            for number in range(options.members + 1):
                client = self._client(f"g{group}", kind, number)
                world.clients.append(client)
                if number < options.members:
                    world.after(3_000.0 * self._people.random(), self._start, client)
                else:
                    client.is_wanted = False
                    self._spares.append(client)
        world.elect(0)
        if options.faults:
            world.after(4_000.0 + self._interval(), self._strike)
        for _ in range(options.outages):
            world.after(5_000.0 + 25_000.0 * self._outages.random(), self._outage)

    def _client(self, group_id: str, kind: str, number: int) -> Client:
        world = self._world
        instance = f"i{number}" if self._people.random() < world.options.statics else None
        if kind == "consumer" or (kind == "mixed" and number % 2):
            return Modern(world, number, group_id, instance)
        return Classic(world, number, group_id, instance, is_cooperative=kind != "eager")

    def calm(self) -> None:
        """Heals all faults and starts every wanted consumer."""
        world = self._world
        world.is_calm = True
        world.refuses_until_ms = world.unreadable_until_ms = world.commits_from_ms = 0.0
        world.tell("calms down")
        for broker in world.brokers:
            broker.unaware_since_ms = None
            broker.go_on()
            broker.start()
        for broker in world.brokers:
            if broker.number != world.leadership.broker:
                broker.do(Resigned(world.leadership.epoch))
        world.elect(self._random.randrange(BROKERS))
        world.after(2_000.0, self._tell_old_news)
        for client in world.clients:
            client.resume()
            if client.is_wanted:
                self._start(client)

    def _start(self, client: Client) -> None:
        if client.is_wanted:
            client.start()

    def _interval(self) -> float:
        return self._random.expovariate(1 / self._world.options.fault_every_ms)

    def _strike(self) -> None:
        if self._world.is_calm:
            return
        kind = self._random.choice(self._world.options.faults)
        if getattr(self, "_" + kind.replace(" ", "_"))():
            self._world.counts[kind] += 1
            self._world.tell(kind)
        self._world.after(self._interval(), self._strike)

    # --- brokers --------------------------------------------------------------------------------------------------

    def _leader(self) -> Broker:
        return self._world.brokers[self._world.leadership.broker]

    def _other(self) -> int | None:
        up = [each.number for each in self._world.brokers if each.is_up]
        return self._random.choice(up) if up else None

    def _failover(self) -> bool:
        number = self._other()
        if number is None:
            return False
        self._world.elect(number, tells_old_ms=300.0 * self._random.random())
        return True

    def _unaware(self) -> bool:
        """Cuts the leader off from the controller; another broker is elected, and the former leader learns it late."""
        leader = self._leader()
        others = [each for each in self._world.brokers if each.is_up and each is not leader]
        if not others or leader.unaware_since_ms is not None:
            return False
        leader.lose_controller()
        since_ms = self._world.time_ms
        number = self._random.choice(others).number
        away_ms = self._world.options.lease_ms + 100.0 + 4_000.0 * self._random.random()
        self._world.after(
            self._world.options.lease_ms + 50.0, self._elect_in_place_of, leader, since_ms, number, away_ms
        )
        return True

    def _elect_in_place_of(self, leader: Broker, since_ms: float, number: int, away_ms: float) -> None:
        world = self._world
        if leader.unaware_since_ms != since_ms:
            return  # it was restarted, and is informed
        if not world.is_calm and world.leadership.broker == leader.number and world.brokers[number].is_up:
            world.elect(number, tells_old_ms=away_ms)
            world.after(away_ms + 1.0, self._tell_again, leader, since_ms)
        else:
            leader.unaware_since_ms = None

    def _outage(self) -> None:
        """No controller answers, for up to two sessions, and no other leader is elected."""
        leader = self._leader()
        if not self._world.is_calm and leader.is_up and leader.unaware_since_ms is None:
            leader.lose_controller()
            length_ms = self._world.options.lease_ms + 2 * self._world.options.session_ms * self._outages.random()
            self._world.after(length_ms, self._tell_again, leader, self._world.time_ms)
            self._world.counts["outage"] += 1
            self._world.tell("outage")

    def _tell_again(self, broker: Broker, since_ms: float) -> None:
        if broker.unaware_since_ms == since_ms:
            broker.unaware_since_ms = None
            broker.do(TimePassed())

    def _crash(self) -> bool:
        leader = self._leader()
        others = [each.number for each in self._world.brokers if each.is_up and each is not leader]
        if not leader.is_up or not others:
            return False
        leader.crash()
        self._world.elect(self._random.choice(others))
        self._world.after(4_000.0 * self._random.random(), leader.start)
        return True

    def _stall(self) -> bool:
        leader = self._leader()
        leader.stall()
        length = self._world.options.session_ms * (0.2 + 1.2 * self._random.random())
        self._world.after(length if self._random.random() < 0.5 else 600.0, leader.go_on)
        return True

    # --- the log --------------------------------------------------------------------------------------------------

    def _uncommitted(self) -> bool:
        """Nothing is committed for a while; then perhaps another broker leads, without the uncommitted records."""
        length = 4_000.0 * self._random.random()
        self._world.commits_from_ms = self._world.time_ms + length
        number = self._other()
        if number is not None and self._random.random() < 0.7:
            self._world.after(0.9 * length, self._elect_calmly, number)
        return True

    def _elect_calmly(self, number: int) -> None:
        if not self._world.is_calm and self._world.brokers[number].is_up:
            self._world.elect(number)

    def _refusal(self) -> bool:
        self._world.refuses_until_ms = self._world.time_ms + 2_500.0 * self._random.random()
        return True

    def _unreadable(self) -> bool:
        """A new leader cannot read its log; the next one can."""
        number = self._other()
        if number is None:
            return False
        self._world.unreadable_until_ms = self._world.time_ms + 200.0
        self._world.elect(number)
        self._world.after(400.0, self._elect_calmly, self._random.randrange(BROKERS))
        return True

    def _old_news(self) -> bool:
        """Delivers outdated elections and resignations again."""
        self._tell_old_news()
        return True

    def _tell_old_news(self) -> None:
        world = self._world
        epoch = world.leadership.epoch
        for broker in world.brokers:
            old = self._random.randint(max(0, epoch - 2), epoch)
            if broker.number != world.leadership.broker or old < epoch:
                broker.do(Resigned(old))
            if self._random.random() < 0.5 and broker.runtime.epoch >= 0:
                broker.do(Elected(self._random.randint(0, broker.runtime.epoch), 0))

    def _compaction(self) -> bool:
        self._world.compact()
        return True

    def _gap(self) -> bool:
        """The log ends with removed offsets, and a broker has to load it."""
        number = self._other()
        leadership = self._world.leadership
        if number is None or leadership.end > leadership.committed:
            return False
        gap(leadership, self._random.randint(1, 3))
        self._world.elect(number)
        return True

    # --- consumers ------------------------------------------------------------------------------------------------

    def _someone(self) -> Client | None:
        up = [each for each in self._world.clients if each.is_up and not each.is_paused]
        return self._random.choice(up) if up else None

    def _client_crash(self) -> bool:
        client = self._someone()
        if client is None:
            return False
        client.crash()
        self._world.after(5_000.0 * self._random.random(), self._start, client)
        return True

    def _client_pause(self) -> bool:
        client = self._someone()
        if client is None:
            return False
        client.pause()
        self._world.after(2.0 * self._world.options.session_ms * self._random.random(), client.resume)
        return True

    def _client_leaves(self) -> bool:
        client = self._someone()
        if client is None:
            return False
        client.leave()
        self._world.after(4_000.0 * self._random.random(), self._start, client)
        return True

    def _client_joins(self) -> bool:
        """Starts one more consumer, for a while."""
        client = self._random.choice(self._spares)
        if client.is_up:
            return False
        client.start()
        self._world.after(6_000.0 * self._random.random(), self._send_home, client)
        return True

    def _send_home(self, client: Client) -> None:
        if client.is_up:
            client.leave()

    def _growth(self) -> bool:
        group_id = self._random.choice(list(self._world.partitions))
        if self._world.partitions[group_id] > 8:
            return False
        self._world.grow(group_id)
        return True

    def _impatient(self) -> bool:
        """Makes a client join with the old version, give up soon, and rejoin without an id (R27)."""
        old = [each for each in self._world.clients if isinstance(each, Classic) and each.instance is None]
        if not old:
            return False
        self._random.choice(old).is_old = True
        return True

    def _operator(self) -> bool:
        """An operator lists or describes groups, or deletes empty ones."""
        world, leader = self._world, self._leader()
        if leader.is_stalled:
            return False
        names = list(world.partitions)
        requests = (
            ListGroupsRequest(),
            DescribeGroupsRequest(groups=names),
            ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=False),
            DeleteGroupsRequest(groups_names=names),
        )
        world.is_deleting = True
        leader.ask(Ask(self._random.choice(requests), 2), lambda _: None)
        world.is_deleting = False
        return True

    def _everybody_leaves(self) -> bool:
        """Empties a group for so long that its offsets may expire."""
        group_id = self._random.choice(list(self._world.partitions))
        length = self._world.options.retention_ms * (0.5 + self._random.random()) + 2_000.0
        if self._random.random() < 0.5:
            length += self._world.settings.load_grace_ms
        for client in self._world.clients:
            if client.group_id == group_id and client.is_up and not client.is_paused:
                client.leave()
                self._world.after(length, self._start, client)
        return True


def run_seed(seed: int, *, options: Options | None = None, story: list[str] | None = None) -> Run:
    """Runs a whole world; raises the first failure."""
    drawn = options if options is not None else draw_options(seed)
    world = World(seed, drawn, story=story)
    misfortune = Misfortune(world)
    misfortune.begin()
    world.run(TORMENT_MS)
    misfortune.calm()
    for client in world.clients:
        if not client.is_wanted and client.is_up:
            client.leave()
    world.run(END_MS)
    world.checks.end()
    world.tell(f"{world.events} {world.checks.acknowledged} {sorted(world.counts.items())}")
    return Run(seed, world.events, world.counts["batches"], world.checks.acknowledged, dict(world.counts), world.trace)
