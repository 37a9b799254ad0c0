"""Power cuts beyond the guarantee of durability=replicated: every loss that they cause is reported, and nothing else.

    python -m tests.system.cluster_faults --wide-cuts 10 --record

In each round new topics are written to, and two nodes lose their power at once, or all of them, or one after the other
before the last one has caught up. If a partition has no leader then, the nodes and `penstock cluster health` have to
report that records may be lost, and an operator has a leader elected. A record that was acknowledged before and is not
at its offset must lie behind an offset that the leader reported; records acknowledged afterwards are there. A round in
which no node reported anything must pass all checks of the other campaigns.
"""

import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import confluent_kafka

from harness.load import CALM, Load, create_topics, ends_of
from penstock.cli.cluster.checkups import health_findings
from penstock.cli.cluster.health import state_of
from penstock.client.errors import ClientError
from penstock.client.metadata import TopicPartition
from penstock.model.errors import ErrorCode
from penstock.verify.findings import Findings
from penstock.verify.report import Counts, Report
from tests.system.cluster_faults import (
    ASK_MS,
    JAVA_RATE,
    JAVA_TOPIC,
    NODES,
    RATE,
    REPLICATED,
    TOPICS,
    WHOLE_S,
    WIDE_CUTS,
    Outcome,
    Town,
    _tell,
    await_progress,
)
from tests.system.mortal_node import Broken
from tests.system.victim import CUT
from tests.system.witness import unexplained

SHAPES: Final = {"two at once": 3, "all at once": 5, "one after the other": 2}
UNLED: Final = re.compile(r"ERROR \S+ Records of (\S+) may be lost, and nobody leads it")
FROM: Final = re.compile(r"ERROR \S+ Records of (\S+) may be lost: .*? from offset (\d+) on")
SERVES: Final = "Listening on"
READ_S: Final = 60.0
FINDINGS_MAX: Final = 20
Place = tuple[str, int]
"""A partition's name, and an offset."""
Record = tuple[str, int, str]
"""A partition's name, an offset, and the value there."""


@dataclass
class Tally:
    """Totals of all rounds."""

    acked: int = 0
    read: int = 0
    lost: int = 0
    partitions: set[str] = field(default_factory=set)
    """Partitions with a reported loss."""
    rounds_reported: int = 0
    findings: Findings = field(default_factory=lambda: Findings(FINDINGS_MAX))
    problems: list[str] = field(default_factory=list)


def run(
    directory: Path,
    count: int,
    seed: int,
    *,
    seconds_max: float = float("inf"),
    plant: str | None = None,
    rate: float = RATE,
    java_rate: float | None = JAVA_RATE,
    shapes: Sequence[str] = (),
) -> Outcome:
    """Runs up to `count` rounds within `seconds_max`; `shapes` sets how the first ones are cut."""
    began = time.monotonic()
    random, struck, tally = Random(seed), Counter[str](), Tally()
    all_topics: list[tuple[str, int]] = []
    with Town(directory, lossy_seed=seed, plant=plant) as town:
        until_all_listen(town)
        rounds = 0
        while rounds < count and time.monotonic() - began < seconds_max and not tally.problems:
            drawn = random.choices(list(SHAPES), list(SHAPES.values()))[0]
            shape = shapes[rounds] if rounds < len(shapes) else drawn
            topics = [(f"{topic}{rounds}", partitions) for topic, partitions in TOPICS]
            java = (f"{JAVA_TOPIC[0]}{rounds}", JAVA_TOPIC[1], java_rate) if java_rate is not None else None
            own = [*topics, java[:2]] if java is not None else topics
            create_topics(town.bootstrap, own, replication_factor=len(NODES), **REPLICATED)
            all_topics += own
            struck[shape] += 1
            with Load(town.bootstrap, topics, rate=rate, seed=seed * 1_000 + rounds, java=java) as load:
                _round(town, load, shape, own, random, tally)
            rounds += 1
            _tell(f"{WIDE_CUTS}: {rounds} of {count}, {tally.acked:,} acknowledged, {tally.lost:,} lost and reported")
    town.check_words()
    report = Report(_counts(tally), tally.findings)
    town.compare(report, all_topics)
    fates = [each for each in town.fates() if each.place not in tally.partitions]
    problems = [*tally.problems, *(f"out of order without a reason: {each}" for each in unexplained(fates))]
    out_of_order = sum(each.is_out_of_order for each in fates)
    refused = sum(each.code is not ErrorCode.NONE for each in fates)
    more = {
        "lost": tally.lost,
        "partitions_reported": len(tally.partitions),
        "rounds_reported": tally.rounds_reported,
    }
    took_s = time.monotonic() - began
    return Outcome(WIDE_CUTS, rounds, struck, took_s, report, out_of_order, refused, problems, more)


def _round(town: Town, load: Load, shape: str, topics: Sequence[tuple[str, int]], random: Random, tally: Tally) -> None:
    town.until_whole()
    await_progress(load)
    time.sleep(0.5 + random.random())
    strike(town, shape, random)
    until_all_listen(town)
    unsaid = have_leaders_elected(town)
    tally.problems += unsaid
    town.until_whole()
    decided_ns = time.monotonic_ns()
    reported = losses_of(town, topics)
    if not reported and not unsaid:
        report = load.finish(is_spoilt=bool(load.problems))
        tally.problems += load.problems
        tally.findings.extend(report.findings)
        tally.acked += report.counts.records_acked
        tally.read += report.counts.records_polled
        return
    load.finish(is_spoilt=True)  # clients may be beyond the end, or out of order, and get errors
    load.give_up()
    town.until_whole()
    acked = acknowledged(load)
    there = read_back(town.bootstrap, topics)
    lost = {record: when_ns for record, when_ns in acked.items() if there.get(record[:2]) != record[2]}
    tally.problems += silent(lost, reported, decided_ns)
    tally.acked += len(acked)
    tally.read += len(there)
    tally.lost += len(lost)
    tally.partitions |= reported.keys()
    tally.rounds_reported += 1


def strike(town: Town, shape: str, random: Random) -> None:
    """Cuts the power of some nodes, and restarts them at once or a little later."""
    victims = random.sample(NODES, 2 if shape == "two at once" else len(NODES))
    if shape == "one after the other":
        for each in victims:
            town.nodes[each].end(CUT)
            town.nodes[each].start()
            time.sleep(random.random() / 2)
        return
    for each in victims:
        town.nodes[each].send(CUT)
    for each in victims:
        town.nodes[each].wait()
    time.sleep(random.choice((0.0, 2 * random.random())))
    for each in victims:
        town.nodes[each].start()


def until_all_listen(town: Town) -> None:
    """Waits until each node has registered since its last start: leadership is settled as far as it can be."""
    deadline = time.monotonic() + WHOLE_S
    while late := [each for each in town.nodes.values() if each.log.count(SERVES) < each.starts]:
        if time.monotonic() > deadline:
            raise Broken(f"node {late[0].node_id} does not serve after {WHOLE_S} s: {late[0].log[-2000:]}")
        time.sleep(0.1)


def have_leaders_elected(town: Town) -> list[str]:
    """Has leaders elected as an operator does, after reading `health` and the nodes' logs. Returns missing reports."""
    unled = unled_partitions(town)
    if not unled:
        return []
    said = {found[1] for node in town.nodes.values() for found in UNLED.finditer(node.log)}
    problems = [
        f"nobody leads {each}, and no node has said that records may be lost"
        for each in unled
        if f"{each.topic}-{each.partition}" not in said
    ]
    findings = [each.found for each in health_findings(state_of(town.bootstrap)) if each.check == "lost"]
    if not any(each.startswith(f"{len(unled)} partition") for each in findings):
        problems.append(f"nobody leads {len(unled)} partitions; health says of lost records: {findings}")
    town.ask(lambda admin: admin.elect_leaders(unled, is_unclean=True, timeout_ms=ASK_MS))
    deadline = time.monotonic() + WHOLE_S
    while left := unled_partitions(town):
        if time.monotonic() > deadline:
            raise Broken(f"nobody leads {', '.join(map(str, left))} after an unclean election")
        time.sleep(0.1)
    return problems


def unled_partitions(town: Town) -> list[TopicPartition]:
    """Partitions without a leader, in all topics, once all nodes that could lead are back."""
    deadline = time.monotonic() + WHOLE_S
    while True:
        try:
            return [
                TopicPartition(topic.name, each.index)
                for topic in town.topics()
                for each in topic.partitions
                if each.leader not in NODES
            ]
        except ClientError as error:
            if time.monotonic() > deadline:
                raise Broken(str(error)) from error


def losses_of(town: Town, topics: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Partitions of these topics that were led again after a loss, and the first offset that may be lost."""
    names = {f"{topic}-{index}" for topic, count in topics for index in range(count)}
    found: dict[str, int] = {}
    for node in town.nodes.values():
        for each in FROM.finditer(node.log):
            if each[1] in names:
                found[each[1]] = min(int(each[2]), found.get(each[1], int(each[2])))
    return found


def acknowledged(load: Load) -> dict[Record, int]:
    """Acknowledged records, and when the client received the ack; after a loss two records may have had one offset."""
    return {
        (partition, offset, value): event.time_ns
        for client in load.clients
        for event in client.diary.events
        if event.type == "ok" and event.function == "send"
        for partition, offset, value in event.value or ()
    }


def read_back(bootstrap: str, topics: Iterable[tuple[str, int]]) -> dict[Place, str]:
    """Reads everything that is in the topics now."""
    found: dict[Place, str] = {}
    consumer: Any = confluent_kafka.Consumer(
        {**CALM, "bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    try:
        places = [(topic, index) for topic, count in topics for index in range(count)]
        ends = ends_of(bootstrap, places, time.monotonic() + READ_S)
        consumer.assign([confluent_kafka.TopicPartition(*each, 0) for each, end in ends.items() if end])
        left = {each for each, end in ends.items() if end}
        deadline = time.monotonic() + READ_S
        while left and time.monotonic() < deadline:
            for message in consumer.consume(1_000, 0.2):
                if message.error() is not None:
                    continue
                where = message.topic(), message.partition()
                value = message.value().partition(b" ")[0].decode()
                found[f"{where[0]}-{where[1]}", message.offset()] = value
                if message.offset() + 1 >= ends[where]:
                    left.discard(where)
        if left:
            raise Broken(f"could not be read to the end: {left}")
    finally:
        consumer.close()
    return found


def silent(lost: dict[Record, int], reported: dict[str, int], decided_ns: int) -> list[str]:
    """Losses that were not reported: in other partitions, before the reported offset, or of later records."""
    problems = []
    for (partition, offset, _), when_ns in sorted(lost.items()):
        if partition not in reported:
            problems.append(f"{partition}: offset {offset} is lost, and nobody has said so")
        elif offset < reported[partition]:
            problems.append(f"{partition}: offset {offset} is lost; reported was from {reported[partition]} on")
        elif when_ns > decided_ns:
            problems.append(f"{partition}: offset {offset} is lost, and was acknowledged after the election")
    return problems


def _counts(tally: Tally) -> Counts:
    zeros = dict.fromkeys(Counts.__slots__, 0)
    return Counts(**{**zeros, "records_acked": tally.acked, "records_polled": tally.read, "records_read": tally.read})
