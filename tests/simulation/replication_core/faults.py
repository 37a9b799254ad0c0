"""Faults in a world of replicas, and its users: produce, list offsets, move replicas, shut brokers down."""

from random import Random
from typing import Final, NamedTuple

from penstock.metadata.cluster_commands import AlterReassignments, ElectLeaders, PartitionRef, Reassignment
from penstock.metadata.commands import ConfigChanges, IncrementalAlterConfigs, Operation
from penstock.replication.ports import Key
from tests.simulation.replication_core.controller import TOPIC
from tests.simulation.replication_core.options import Options, draw_options
from tests.simulation.replication_core.outsider import Outsider
from tests.simulation.replication_core.world import Broker, World, trace_of

SETTLE_MS: Final = 3_000.0
"""The time until all brokers are registered and in sync for the first time, approximately."""
TORMENT_MS: Final = 42_000.0
PRODUCE_END_MS: Final = 54_000.0
END_MS: Final = 60_000.0


class Run(NamedTuple):
    """The result of a world."""

    seed: int
    events: int
    committed: int
    acknowledged: int
    epochs: int
    deletions: int
    """The number of acknowledged DeleteRecords."""
    counts: dict[str, int]
    trace_hash: int


class Misfortune:
    """Injects faults until `calm`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random: Random = world.streams.stream("faults")
        self._people: Random = world.streams.stream("people")
        self._deleters: Random = world.streams.stream("deleters")
        self._batches: Random = world.streams.stream("batches")
        self._failures: Random = world.streams.stream("failures")
        self._values = 0
        self._silent_until_ms = 0.0

    def begin(self) -> None:
        world = self._world
        world.quorum.elect()
        for broker in world.brokers.values():
            world.after(50.0 * self._random.random(), self._start, broker)
        world.after(1_500.0, world.quorum.create_topic)
        world.after(2_000.0, self._produce)
        world.after(2_500.0, self._ask)
        world.after(4_000.0, self._flush)
        if world.options.delete_every_ms:
            world.after(3_000.0, self._delete_records)
        world.after(PRODUCE_END_MS + 1_000.0, self._delete_all)
        if world.options.fails_logs:
            world.after(SETTLE_MS + 8_000.0 * self._failures.random(), self._fail_log)
        if world.options.faults:
            world.after(SETTLE_MS + self._interval(), self._strike)

    def calm(self) -> None:
        """Heals all faults."""
        world = self._world
        world.is_calm = True
        world.cut_links.clear()
        world.options = world.options._replace(delay_ms=1.0, sync_ms=0.5, produce_every_ms=500.0)
        world.tell("world", "calms down")
        for broker in world.brokers.values():
            broker.is_stale = False
            broker.resume()
            if broker.has_failed_log:
                self._start_anew(broker, broker.life)
            self._start(broker)
        world.after(3_000.0 * self._random.random(), world.quorum.elect)  # while many are about to rejoin the ISR

    def _start(self, broker: Broker) -> None:
        if not broker.is_up:
            broker.start()

    # --- users ----------------------------------------------------------------------------------------------------

    def _keys(self) -> list[Key]:
        return list(self._world.partitions())

    def _produce(self) -> None:
        world, random = self._world, self._people
        for key in self._keys() if world.time_ms >= self._silent_until_ms else ():
            leaders = world.leaders(key)
            if leaders and random.random() < 0.7:
                broker = leaders[-1] if random.random() < 0.8 else random.choice(leaders)
                for _ in range(random.choice((1, 1, 1, 4))):
                    batch_max = world.options.batch_max
                    count = self._batches.randint(1, batch_max) if batch_max > 1 else 1
                    broker.produce(key, *range(self._values + 1, self._values + count + 1))
                    self._values += count
        if world.time_ms < PRODUCE_END_MS:
            world.after(2 * random.random() * world.options.produce_every_ms, self._produce)

    def _ask(self) -> None:
        for key in self._keys():
            for broker in self._world.leaders(key):
                broker.ask_for_end(key)
        self._world.after(300.0 * self._people.random(), self._ask)

    def _flush(self) -> None:
        for broker in self._world.brokers.values():
            if broker.is_up:
                broker.flush()
        self._world.after(8_000.0 * self._people.random(), self._flush)

    def _delete_records(self) -> None:
        world, random = self._world, self._deleters
        for key in self._keys():
            leaders = world.leaders(key)
            if leaders and random.random() < 0.5:
                broker = leaders[-1] if random.random() < 0.8 else random.choice(leaders)
                log = broker.disk.logs[key]
                offset = random.randint(log.start_offset, max(log.start_offset, log.high_watermark))
                broker.delete_records(key, offset, random.choice((300.0, 2_000.0, 10_000.0)))
        if world.time_ms < PRODUCE_END_MS:
            world.after(2 * random.random() * world.options.delete_every_ms, self._delete_records)

    def _delete_all(self) -> None:
        """Deletes all records; with all faults healed, every deletion must be acknowledged."""
        for key in self._keys():
            for broker in self._world.leaders(key)[-1:]:
                broker.delete_records(key, broker.disk.logs[key].high_watermark, END_MS)

    def _fail_log(self) -> None:
        """Fails a log of some broker; the broker is restarted later."""
        world, random = self._world, self._failures
        if world.is_calm:
            return
        found = [
            (broker, key)
            for broker in world.brokers.values()
            if broker.replicas is not None and broker.paused is None and self._may_lose(broker)
            for key, log in broker.disk.logs.items()
            if not log.has_failed
        ]
        if found:
            broker, key = random.choice(found)
            broker.fail_log(key)
            world.counts["failed log"] += 1
            world.after(500.0 + 8_000.0 * random.random(), self._start_anew, broker, broker.life)
        world.after(8_000.0 * random.random(), self._fail_log)

    def _start_anew(self, broker: Broker, life: int) -> None:
        if broker.is_up and broker.life == life:
            broker.die(loses=False)
            self._start(broker)

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

    def _someone(self) -> Broker:
        """A random broker; a leader more often, since faults do most harm there."""
        keys = self._keys()
        if keys and self._random.random() < 0.5:
            leaders = self._world.leaders(self._random.choice(keys))
            if leaders:
                return leaders[-1]
        return self._random.choice(list(self._world.brokers.values()))

    def _down(self, broker: Broker, *, loses: bool) -> bool:
        if not broker.is_up:
            return False
        broker.die(loses=loses)
        self._world.after(self._random.choice((50.0, 1_000.0, 6_000.0)) * self._random.random(), self._start, broker)
        return True

    def _kill(self) -> bool:
        return self._down(self._someone(), loses=False)

    def _power_cut(self) -> bool:
        """Cuts the power of one broker, within what the topic survives unless the world is to exceed that."""
        broker = self._someone()
        if not self._may_lose(broker):
            return False
        if self._random.random() < 0.3:  # after its return, its fetches do not arrive for a while
            links = [(broker.broker_id, each) for each in self._world.brokers if each != broker.broker_id]
            self._cut(links, 12_000.0)
        return self._down(broker, loses=True)

    def _may_lose(self, broker: Broker) -> bool:
        world = self._world
        if world.options.is_fsync or world.options.is_beyond:
            return True
        spared = min(world.in_sync_min(), world.in_sync_min(is_newest=True), world.options.factor) - 1
        newest = world.partitions(is_newest=True)
        for key, partition in world.partitions().items():
            for each in (partition, newest[key]):
                if broker.broker_id not in each.replicas:
                    continue
                others = [world.brokers[broker_id] for broker_id in each.replicas if broker_id != broker.broker_id]
                impaired = [other for other in others if other.is_impaired(key, partition)]
                candidates = (*each.isr, *each.eligible_leader_replicas)
                kept = [other for other in others if other.broker_id in candidates and other not in impaired]
                if len(impaired) + 1 > spared or not kept:
                    return False
        return True

    def _blackout(self) -> bool:
        """Takes all brokers down at once."""
        if not (self._world.options.is_fsync or self._world.options.is_beyond):
            return bool([each for each in self._world.brokers.values() if self._down(each, loses=False)])
        return bool([each for each in self._world.brokers.values() if self._down(each, loses=True)])

    def _partition(self) -> bool:
        """Isolates one node, or separates two groups, perhaps with a bridge; the controller is in one of them."""
        nodes = [0, *self._world.brokers]
        self._random.shuffle(nodes)
        size = self._random.choice((1, len(nodes) // 2))
        one, other = nodes[:size], nodes[size:]
        if len(other) > 2 and self._random.random() < 0.3:
            other = other[1:]
        links = [(a, b) for a in one for b in other]
        self._cut([*links, *((b, a) for a, b in links)])
        return bool(links)

    def _one_way_cut(self) -> bool:
        victim = self._someone().broker_id
        others = [each for each in (0, *self._world.brokers) if each != victim and self._random.random() < 0.6]
        is_deaf = self._random.random() < 0.5
        self._cut([(other, victim) if is_deaf else (victim, other) for other in others])
        return bool(others)

    def _cut(self, links: list[tuple[int, int]], longest_ms: float | None = None) -> None:
        world = self._world
        world.tell("world", f"cuts {links}")
        world.cut_links.update(links)
        longest_ms = longest_ms or self._random.choice((500.0, 4_000.0, 10_000.0))
        world.after(longest_ms * self._random.random(), self._heal, links)

    def _heal(self, links: list[tuple[int, int]]) -> None:
        if not self._world.is_calm:
            self._world.tell("world", f"heals {links}")
            self._world.cut_links.subtract(links)

    def _pause(self) -> bool:
        broker = self._someone()
        if not broker.is_up or broker.paused is not None:
            return False
        broker.pause()
        wait_ms = self._random.choice((200.0, 2_000.0, 8_000.0)) * self._random.random()
        self._world.after(wait_ms, self._resume, broker, broker.life)
        return True

    def _resume(self, broker: Broker, life: int) -> None:
        if broker.life == life:
            broker.resume()

    def _stale(self) -> bool:
        """Delays the metadata log of a broker for a while, and nothing else."""
        broker = self._someone()
        if not broker.is_up or broker.is_stale:
            return False
        self._keep_from_metadata(broker, 4_000.0)
        return True

    def _keep_from_metadata(self, broker: Broker, longest_ms: float) -> None:
        self._hide(broker)
        self._world.after(longest_ms * self._random.random(), self._fresh, broker)

    def _hide(self, broker: Broker) -> None:
        broker.is_stale = broker.is_retracing = True

    def _fresh(self, broker: Broker) -> None:
        broker.is_stale = False
        self._world.follow_metadata(broker)

    def _lull(self) -> bool:
        """Stops the producers for a while."""
        self._silent_until_ms = self._world.time_ms + 6_000.0 * self._random.random()
        return True

    def _shutdown(self) -> bool:
        broker = self._someone()
        if broker.replicas is None or broker.is_leaving:
            return False
        broker.is_leaving = True
        return True

    def _move(self) -> bool:
        keys = self._keys()
        if not keys:
            return False
        options = self._world.options
        number = self._random.choice(keys)[1]
        replicas = tuple(self._random.sample(list(self._world.brokers), options.factor))
        self._world.quorum.decide(
            AlterReassignments((Reassignment(PartitionRef(TOPIC, number), replicas),)), lambda _: None
        )
        return True

    def _elect(self) -> bool:
        self._world.quorum.decide(ElectLeaders(None), lambda _: None)
        return True

    def _rush(self) -> bool:
        """Changes leaders several times, faster than replicas can follow."""
        keys = self._keys()
        if not keys:
            return False
        if self._random.random() < 0.7:
            brokers = list(self._world.brokers)
            links = [(a, b) for a in brokers for b in brokers if a != b and self._random.random() < 0.6]
            self._cut(links, 1_500.0)
        for broker in self._world.brokers.values():
            if self._random.random() < 0.4:
                self._keep_from_metadata(broker, 2_500.0)
        at_ms = 0.0
        for _ in range(self._random.randint(2, 4)):
            self._world.after(at_ms, self._hand_over, self._random.choice(keys))
            at_ms += 400.0 * self._random.random()
        return True

    def _hand_over(self, key: Key, to: int | None = None) -> None:
        partition = self._world.partitions()[key]
        if self._world.is_calm or partition.adding_replicas or partition.removing_replicas:
            return
        ref = PartitionRef(TOPIC, key[1])
        replicas = self._random.sample(partition.replicas, len(partition.replicas))
        replicas.sort(key=lambda each: each != to)
        self._world.quorum.decide(AlterReassignments((Reassignment(ref, tuple(replicas)),)), lambda _: None)
        self._world.quorum.decide(ElectLeaders((ref,)), lambda _: None)

    def _to_and_fro(self) -> bool:
        """Moves leadership to another broker and back; that one misses the way back, a third misses both."""
        found = [
            (key, each) for key, each in self._world.partitions().items() if each.leader >= 0 and len(each.isr) > 2
        ]
        if not found:
            return False
        key, partition = self._random.choice(found)
        one = partition.leader
        two, three = self._random.sample([each for each in partition.isr if each != one], 2)
        self._hide(self._world.brokers[three])
        self._hand_over(key, two)
        back_ms = 30.0 + 600.0 * self._random.random()
        self._world.after(back_ms, self._hide, self._world.brokers[two])
        self._world.after(back_ms, self._hand_over, key, one)
        late_ms = back_ms + self._world.options.lag_ms * 1.5 + 1_500.0 * self._random.random()
        self._world.after(late_ms, self._fresh, self._world.brokers[three])
        self._world.after(late_ms + 1_000.0 * self._random.random(), self._fresh, self._world.brokers[two])
        return True

    def _second_life(self) -> bool:
        """A follower loses power and soon returns, but its fetches do not arrive; there are no writes meanwhile."""
        followers = [
            self._world.brokers[each]
            for partition in self._world.partitions().values()
            for each in partition.isr
            if each != partition.leader and self._world.brokers[each].is_up
        ]
        broker = self._random.choice(followers) if followers else None
        if broker is None or not self._may_lose(broker):
            return False
        broker.die(loses=True)
        self._world.after(100.0 * self._random.random(), self._start, broker)
        away_ms = 1.5 * self._world.options.session_ms + 2_000.0
        self._cut([(broker.broker_id, each) for each in self._world.brokers if each != broker.broker_id], 2 * away_ms)
        self._silent_until_ms = self._world.time_ms + away_ms
        return True

    def _delete(self) -> bool:
        for key in self._keys():
            for broker in self._world.leaders(key)[-1:]:
                broker.delete(key)
        return True

    def _minimum(self) -> bool:
        """Changes min.insync.replicas, unless a broker may have lost records."""
        partitions = self._world.partitions().items()
        if any(each.is_impaired(*pair) for each in self._world.brokers.values() for pair in partitions):
            return False
        value = str(self._random.randint(1, self._world.options.factor))
        changes = ConfigChanges(2, TOPIC, (("min.insync.replicas", Operation.SET, value),))
        self._world.quorum.decide(IncrementalAlterConfigs((changes,), asked_at=0), lambda _: None)
        return True

    def _failover(self) -> bool:
        self._world.quorum.elect()
        return True


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
        sum(map(len, world.checks.committed.values())),
        world.checks.acknowledgements,
        len(world.checks.epochs_led),
        world.checks.deletions,
        dict(world.counts),
        trace_of(world),
    )
