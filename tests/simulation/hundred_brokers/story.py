"""The events in a cluster of a hundred brokers, how long they take, and what they cost the controller."""

import datetime
import gc
import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from harness.metadata_world import Dice
from penstock.metadata.cluster_commands import DecommissionBroker
from penstock.metadata.commands import CreateTopics, NewTopic
from penstock.metadata.controller import Controller
from penstock.metadata.frames import decode_record, encode_record
from penstock.model.shard import Command
from tests.revision import revision
from tests.simulation.hundred_brokers.world import (
    PUBLISHING,
    RAFT,
    RESTART_MS,
    VOTERS,
    Batch,
    BigWorld,
    Broker,
    Meter,
    Seat,
)
from tests.simulation.kit.results import RESULTS

REPLICAS: Final = 3
PARTITIONS_PER_TOPIC: Final = 100
TOPICS_AT_ONCE: Final = 5
REST_S: Final = 10.0
PARTITION_MIB: Final = 10


@dataclass(frozen=True, slots=True)
class Phase:
    """One event and its cost."""

    what: str
    virtual_s: float
    events: int
    records: int
    record_bytes: int
    commands: int
    controller_s: float
    """CPU of the controller core."""
    longest_ms: float
    """CPU of its longest decision."""
    longest_was: str
    raft_s: float
    """CPU of the raft core of the leader."""
    heartbeats: int
    heartbeat_s: float
    fetches: int
    fetch_s: float

    def row(self) -> str:
        share = f"{100 * self.heartbeat_s / self.controller_s:.0f} %" if self.controller_s else "–"
        cells = [
            self.what,
            f"{self.virtual_s:,.1f}",
            f"{self.events:,}",
            f"{self.records:,}",
            f"{self.record_bytes / 1e6:,.2f}",
            f"{self.commands:,}",
            f"{self.controller_s:,.2f}",
            f"{1e6 * self.controller_s / max(1, self.commands):,.0f}",
            f"{self.longest_ms:,.0f} ({self.longest_was})",
            f"{self.heartbeats / max(self.virtual_s, 1e-3):,.0f}",
            share,
            f"{self.raft_s:,.2f}",
        ]
        return f"| {' | '.join(cells)} |"


@dataclass(slots=True)
class Story:
    """A cluster and the events in it."""

    brokers: int
    partitions: int
    racks: int
    restarts: int
    seed: int = 0
    says: Callable[[str], None] = lambda _sentence: None
    phases: list[Phase] = field(default_factory=list)
    times: dict[str, float] = field(default_factory=dict)
    """Virtual seconds that are of interest by themselves."""
    world: BigWorld = field(init=False)

    def __post_init__(self) -> None:
        self.world = BigWorld(self.seed, brokers=self.brokers, racks=self.racks, partition_bytes=PARTITION_MIB << 20)

    def tell(self) -> None:
        """Runs all events."""
        self._phase(f"{self.brokers} brokers register", self._register)
        self._phase(f"{self.partitions:,} partitions are made", self._create)
        self._phase("nothing happens", lambda: self.world.pass_s(REST_S))
        self._phase("a process is killed", self._kill)
        self._phase("it is back, and in sync", lambda: self._bring_back(self._down()))
        self._phase("a rack goes dark", self._lose_rack)
        self._phase("it is back, and in sync", lambda: self._bring_back(self._down()))
        self._phase("the active controller dies", self._lose_controller)
        self._phase(f"{self.restarts} brokers are restarted in turn", self._restart_in_turn)
        self._phase("one is decommissioned", self._decommission)
        self._check_the_log()

    # --- events ---------------------------------------------------------------------------------------------------

    @property
    def _everybody(self) -> list[Broker]:
        return list(self.world.cluster.brokers.values())

    def _register(self) -> None:
        def all_are_in() -> bool:
            known = self.world.cluster.image.brokers
            return len(known) == self.brokers and all(each.is_active for each in known.values())

        self.world.until(all_are_in, "all brokers are let in")

    def _create(self) -> None:
        count = -(-self.partitions // PARTITIONS_PER_TOPIC)
        topics = [
            NewTopic(
                f"topic-{at:05d}", min(PARTITIONS_PER_TOPIC, self.partitions - at * PARTITIONS_PER_TOPIC), REPLICAS
            )
            for at in range(count)
        ]
        for at in range(0, count, TOPICS_AT_ONCE):
            self._ask(CreateTopics(tuple(topics[at : at + TOPICS_AT_ONCE])))
        made = sum(len(topic.partitions) for topic in self.world.cluster.image.topics.values())
        assert made == self.partitions, f"{made} of {self.partitions} partitions were made"
        self._all_is_well()

    def _kill(self) -> None:
        self.world.cluster.kill(self._everybody[0], is_noticed=True)
        self.times["killed_led_again_s"] = self._until_led()

    def _lose_rack(self) -> None:
        rack = self._everybody[0].rack
        for broker in [each for each in self._everybody if each.rack == rack]:
            self.world.cluster.kill(broker, is_noticed=False)
        self.times["rack_brokers"] = len(self._down())
        self.times["rack_unled"] = len(self.world.cluster.unled)
        self.times["rack_led_again_s"] = self._until_led()
        end = self.world.cluster.end
        self.times["rack_known_s"] = self.times["rack_led_again_s"] + self.world.until(
            lambda: all(self._applied(each) >= end for each in self._everybody if each.is_up), "everybody knows"
        )

    def _down(self) -> list[Broker]:
        return [each for each in self._everybody if not each.is_up]

    def _bring_back(self, brokers: list[Broker]) -> None:
        for broker in brokers:
            self.world.nodes[broker.broker_id].start()
        self._all_is_well()

    def _lose_controller(self) -> None:
        seat = self._active
        (node,) = [each for each in self.world.nodes.values() if each.machine is seat]
        node.crash()
        cluster = self.world.cluster
        self.times["controller_s"] = self.world.until(
            lambda: cluster.active is not None and cluster.active is not seat, "another one is active"
        )
        fenced = cluster.fenced_alive
        self.world.after(RESTART_MS, node.start)
        self.world.pass_s(REST_S)
        self.times["controller_fenced"] = cluster.fenced_alive - fenced
        self._register()
        self._all_is_well()

    def _restart_in_turn(self) -> None:
        """Restarts rack by rack; the rack that lost power, and leads nothing yet, comes last."""
        dark = self._everybody[0].rack
        for broker in sorted(self._everybody, key=lambda each: (each.rack == dark, each.rack))[: self.restarts]:
            self._restart(broker)

    def _restart(self, broker: Broker) -> None:
        life = broker.life
        broker.wants_shutdown = True
        self._never_unled(lambda: broker.life > life, "it stops")
        self._never_unled(lambda: broker.is_up, "it starts again")
        self._never_unled(lambda: not self.world.cluster.lacking, "all is in sync again")

    def _decommission(self) -> None:
        broker = self._everybody[-1]
        self.times["decommissioned_replicas"] = len(broker.held)
        self._ask(DecommissionBroker(broker.broker_id))
        cluster = self.world.cluster
        self._never_unled(lambda: not broker.held and not cluster.lacking, "it is empty")
        self._all_is_well()

    # --- waiting --------------------------------------------------------------------------------------------------

    def _ask(self, command: Command[Any]) -> None:
        """Sends an operator's request, and waits for the response."""
        replies: list[Any] = []
        self._active.submit(command, replies.append)
        self.world.until(lambda: bool(replies), f"{type(command).__name__} is answered")

    @property
    def _active(self) -> Seat:
        seat = self.world.cluster.active
        assert seat is not None, "nobody is the controller"
        return seat

    def _applied(self, broker: Broker) -> int:
        return self.world.nodes[broker.broker_id].machine.applied

    def _until_led(self) -> float:
        return self.world.until(lambda: not self.world.cluster.unled, "all partitions are led")

    def _all_is_well(self) -> None:
        cluster = self.world.cluster
        self.world.until(lambda: not cluster.unled and not cluster.lacking, "all partitions are in sync")

    def _never_unled(self, condition: Callable[[], bool], what: str) -> None:
        cluster = self.world.cluster

        def is_so() -> bool:
            assert not cluster.unled, f"{len(cluster.unled)} partitions are without a leader while waiting that {what}"
            return condition()

        self.world.until(is_so, what)

    # --- measuring ------------------------------------------------------------------------------------------------

    def _phase(self, what: str, happen: Callable[[], None]) -> None:
        world, cluster = self.world, self.world.cluster
        gc.collect()
        gc.freeze()  # as a server does with its image: the cost of a collection must not depend on the world around it
        cluster.meter, began_ms, began_events = Meter(), world.time_ms, world.events_in_all
        happen()
        meter = cluster.meter
        controller = meter.of(lambda kind: not kind.startswith(RAFT))
        commands = meter.of(lambda kind: not kind.startswith(RAFT) and kind != PUBLISHING)
        raft, fetches = meter.of(lambda kind: kind.startswith(RAFT)), meter.of(lambda kind: kind == f"{RAFT}Fetch")
        beats = meter.of(lambda kind: kind == "Heartbeat")
        self.phases.append(
            Phase(
                what,
                round((world.time_ms - began_ms) / 1_000, 3),
                world.events_in_all - began_events,
                meter.records,
                meter.record_bytes,
                commands.times,
                round(controller.cpu_s, 4),
                round(1_000 * controller.longest_s, 1),
                meter.longest(lambda kind: not kind.startswith(RAFT)),
                round(raft.cpu_s, 4),
                beats.times,
                round(beats.cpu_s, 4),
                fetches.times,
                round(fetches.cpu_s, 4),
            )
        )
        self.says(self.phases[-1].row())

    def _check_the_log(self) -> None:
        """Checks that reading the whole log gives the same image, and that replicas of a partition share no rack."""
        cluster = self.world.cluster
        log = next(node for node in self.world.nodes.values() if node.machine is self._active).disk.log
        reader = Controller(0, cluster.settings, Dice())
        for entry in log.entries:
            for record in entry.content.records if isinstance(entry.content, Batch) else ():
                reader.apply(decode_record(encode_record(record)))
        assert reader.image == cluster.image, "the log does not say what the controller has"
        for topic in cluster.image.topics.values():
            for number, partition in topic.partitions.items():
                racks = {cluster.brokers[each].rack for each in partition.replicas}
                assert len(racks) == min(self.racks, REPLICAS), f"{topic.name}-{number} shares a rack: {partition}"


# --- the report -------------------------------------------------------------------------------------------------------


def found(story: Story, cpu_s: float) -> dict[str, Any]:
    """The recorded results of a run."""
    rest = story.phases[2]
    rack = next(each for each in story.phases if each.what == "a rack goes dark")
    working = [each for each in story.phases if each.records > story.brokers]
    return {
        "brokers": story.brokers,
        "partitions": story.partitions,
        "racks": story.racks,
        "restarts": story.restarts,
        "seed": story.seed,
        **{name: round(value, 3) for name, value in story.times.items()},
        "heartbeat_us": round(1e6 * rest.heartbeat_s / rest.heartbeats, 1),
        "heartbeats_s": round(rest.heartbeats / rest.virtual_s, 1),
        "fetch_us": round(1e6 * rest.fetch_s / rest.fetches, 1),
        "fetches_per_broker_s": round(rest.fetches / rest.virtual_s / (story.brokers + VOTERS - 1), 2),
        "record_us": round(1e6 * sum(each.controller_s for each in working) / sum(each.records for each in working), 1),
        "rack_record_bytes": round(rack.record_bytes / max(1, rack.records), 1),
        "phases": [asdict(each) for each in story.phases],
        "cpu_s": round(cpu_s),
        "date": datetime.date.today().isoformat(),
        "revision": revision(),
    }


HEADINGS: Final = (
    "What",
    "Virtual s",
    "Events",
    "Records",
    "MB of records",
    "Decisions",
    "Controller, CPU s",
    "µs per decision",
    "The longest, ms",
    "Heartbeats/s",
    "Their share of it",
    "Raft of the leader, CPU s",
)


def load() -> list[dict[str, Any]]:
    path = RESULTS / "big-cluster.json"
    runs: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return runs


def write(runs: list[dict[str, Any]]) -> None:
    (RESULTS / "big-cluster.json").write_text(json.dumps(runs, indent=1) + "\n")
    memory_gib = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    parts = "\n".join(map(section, runs))
    text = f"""# A hundred brokers in virtual time

A quorum of three raft cores, the deployed controller, and brokers whose own replicas of the metadata log are raft
cores, too (`tests/simulation/hundred_brokers/world.py`); racks are even, partitions have {REPLICAS} replicas of
{PARTITION_MIB} MiB. **Simulated:** the cores are those of the server; network and disks are not real, and nobody writes
records. In virtual time the controller needs 0.05 ms for a command and 0.1 ms for each record of it, so that what piles
up waits.
CPU is real, that of the cores alone on this machine: sockets and asyncio come on top. In a rolling restart and while a
broker is emptied, no partition was without a leader at any time; after everything else all were led and in sync again.

{parts}
`./dev simulate big-cluster` adds to this page. What is there when something begins is frozen for the garbage collector,
as in a server; Python {platform.python_version()}, Linux, {os.cpu_count()} shared cores,
{memory_gib} GiB.
"""
    (RESULTS / "big-cluster.md").write_text(text)


def section(run: dict[str, Any]) -> str:
    rows = "\n".join(Phase(**each).row() for each in run["phases"])
    return f"""## {run["brokers"]} brokers, {run["partitions"]:,} partitions, {run["racks"]} racks

| {" | ".join(HEADINGS)} |
|---|{"--:|" * (len(HEADINGS) - 1)}
{rows}

- A killed process, whose connections break: all is led again after {run["killed_led_again_s"]:.2f} s.
- A rack that goes dark ({run["rack_brokers"]:.0f} brokers, {run["rack_unled"]:,.0f} partitions without their leader) is
  noticed by silence, after 3 s: all is led again after {run["rack_led_again_s"]:.2f} s, and everybody knows after
  {run["rack_known_s"]:.2f} s.
- The active controller loses its power, which is noticed by silence: another one is active after
  {run["controller_s"]:.2f} s. {run["controller_fenced"]:.0f} brokers that ran were fenced for a while, because they did
  not find it within their session of 3 s.
- At rest: {run["heartbeats_s"]:,.0f} heartbeats/s at {run["heartbeat_us"]:.0f} µs each; each broker fetches from the
  metadata log {run["fetches_per_broker_s"]:.1f} times a second, at {run["fetch_us"]:.0f} µs each for the leader.
- A record that is decided, encoded and applied: {run["record_us"]:.0f} µs, {run["rack_record_bytes"]:.0f} bytes.

Seed {run["seed"]}, {run["date"]}, revision {run["revision"]}, {run["cpu_s"]} s of one core.
"""
