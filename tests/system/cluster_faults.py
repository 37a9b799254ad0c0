"""Three nodes that are killed, paused, cut off or lose their power, again and again, under a real load.

    python -m tests.system.cluster_faults --kills 100 --record
    python -m tests.system.cluster_faults --power-cuts 20 --cuts 20 --pauses 20 --rolls 5 --seconds 600 --record
    python -m tests.system.cluster_faults --power-cuts 20 --durability replicated --wide-cuts 10 --record
    python -m tests.system.cluster_faults --kills-of-all 100 --rots 20 --record

Every topic has three replicas, two of which must be in sync; the producers, librdkafka's and Java's, are idempotent and
use acks=all. The next fault comes when all replicas are in sync again. Then: no acknowledged record is lost, duplicated
or out of order, no client has given up, all replicas are equal on the stopped disks, no two controllers were active in
one epoch, and every sequence that was rejected as out of order followed one that was rejected with a retriable error.
With `--durability replicated` power is cut on one node at a time, which is the limit of its guarantee; `--wide-cuts` go
beyond it (`wide_cuts.py`). `--kills-of-all` kills all processes at once, also with `replicated`: nothing may be lost,
and everything must be writable within 10 s of their start. `--record` adds to docs/results/cluster-faults.md;
`--seconds` ends a piece of a longer campaign; `--plant` gives all nodes a bug that the checks must find.
"""

import argparse
import asyncio
import compileall
import datetime
import hashlib
import json
import math
import os
import platform
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self

from harness.load import Load, create_topics
from harness.ports import free_port
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.metadata import Topic
from penstock.model.errors import ErrorCode
from penstock.records.header import batches
from penstock.verify.checks.replicas import Batch, ReplicaLog, find_divergence
from penstock.verify.report import Report
from tests.revision import revision
from tests.system.mortal_node import Broken, MortalNode
from tests.system.network import Network
from tests.system.plants import PLANTS
from tests.system.victim import CUT, DAMAGE, ROOT
from tests.system.witness import Fate, fates_in, unexplained

RESULTS: Final = ROOT / "docs" / "results"
KILLS, POWER_CUTS, CUTS, PAUSES, ROLLS = "SIGKILL", "power cut", "network cut", "pause", "rolling restart"
ONE_CUTS, WIDE_CUTS = "power cut of one, `replicated`", "power cut of several, `replicated`"
ALL_KILLS: Final = "SIGKILL of all, `replicated`"
ROTS: Final = "SIGKILL and flipped bits"
LOSSY: Final = (POWER_CUTS, ONE_CUTS, WIDE_CUTS)
NODES: Final = (1, 2, 3)
TOPICS: Final = (("orders", 4), ("clicks", 2))
JAVA_TOPIC: Final = ("bills", 2)
SETTINGS: Final = {"min_insync_replicas": "2", "segment_bytes": "2000000"}
REPLICATED: Final = {**SETTINGS, "durability": "replicated", "flush_ms": "1000"}
"""Records older than a second are synced, so only a part can be lost."""
RATE: Final = 2_000.0
JAVA_RATE: Final = 500.0
WHOLE_S: Final = 60.0
WRITABLE_S: Final = 10.0
ASK_MS: Final = 30_000
FAULT_S: Final = (4.0, 8.0)
"""Pauses and cuts last longer than a session (3 s)."""
ACTIVE: Final = re.compile(r"Is the active controller, in epoch (\d+);")
FAILED: Final = "FAILED"
LOST: Final = re.compile(r"ERROR \S+ Records of (\S+) may be lost")
"""A broker logs this when acknowledged records may be lost; in a run without such a loss it is a false alarm."""
HEAD: Final = "| Fault | Faults | Of them | Acknowledged | Read | Called out of order | Findings | Seconds |"


class Town:
    """Three nodes, each a broker and a controller; all are stopped at the end, whatever happens."""

    def __init__(
        self,
        directory: Path,
        *,
        network: Network | None = None,
        lossy_seed: int | None = None,
        plant: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        hosts = {each: "127.0.0.1" if network is None else network.address(each) for each in NODES}
        ports = {each: (free_port(), free_port()) for each in NODES}
        voters = ",".join(f"{each}@{hosts[each]}:{ports[each][1]}" for each in NODES)
        self.directory = directory
        self.network = network
        self.bootstrap = ",".join(f"{hosts[each]}:{ports[each][0]}" for each in NODES)
        self.nodes = {
            each: MortalNode(
                directory,
                each,
                {
                    "cluster.id": "faults",
                    "node.id": str(each),
                    "process.roles": "broker,controller",
                    "listeners": f"PLAINTEXT://{hosts[each]}:{ports[each][0]},CONTROLLER://{hosts[each]}:{ports[each][1]}",
                    "controller.listener.names": "CONTROLLER",
                    "controller.quorum.voters": voters,
                    "log.dirs": str(directory / f"node-{each}"),
                    "allow.plaintext.beyond.loopback": str(network is not None).lower(),
                    **(settings or {}),
                },
                lossy_seed,
                plant,
                prefix=() if network is None else network.prefix(each),
                has_witness=True,
            )
            for each in NODES
        }

    def __enter__(self) -> Self:
        for each in self.nodes.values():
            each.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for each in self.nodes.values():
            each.stop()

    # --- client view

    def topics(self) -> list[Topic]:
        """Topics with leaders and ISRs."""
        found: list[Topic] = self.ask(lambda admin: admin.list_topics(timeout_ms=ASK_MS))
        return found

    def controller(self) -> int:
        """The active controller."""
        return int(self.ask(lambda admin: admin.describe_quorum(timeout_ms=ASK_MS)).leader_id)

    def ask(self, question: Callable[[Admin], Any]) -> Any:
        async def ask() -> Any:
            async with Cluster(self.bootstrap, request_timeout_ms=2_000, timeout_ms=ASK_MS) as cluster:
                return await question(Admin(cluster))

        return asyncio.run(ask())

    def until_all_serve(self) -> None:
        """Waits until all nodes are registered brokers."""
        deadline = time.monotonic() + WHOLE_S
        while len(self.ask(lambda admin: admin.describe_cluster(timeout_ms=ASK_MS)).brokers) < len(NODES):
            if time.monotonic() > deadline:
                raise Broken(f"not all nodes serve after {WHOLE_S} s")
            time.sleep(0.1)

    def until_whole(self) -> None:
        """Waits until all replicas are in sync, so that faults do not overlap."""
        deadline = time.monotonic() + WHOLE_S
        behind: list[str] = ["nobody answers"]
        while time.monotonic() < deadline:
            try:
                behind = [
                    f"{topic.name}-{each.index} led by {each.leader}, in sync {sorted(each.isr)}"
                    for topic in self.topics()
                    for each in topic.partitions
                    if len(each.isr) < len(NODES) or each.leader not in NODES
                ]
            except ClientError as error:
                behind = [str(error)]
            if not behind:
                return
            time.sleep(0.1)
        raise Broken(f"not whole again after {WHOLE_S} s: {'; '.join(behind)}")

    def until_writable(self) -> None:
        """Waits until all partitions have a leader and enough in-sync replicas for acks=all."""
        in_sync_min = int(SETTINGS["min_insync_replicas"])
        deadline = time.monotonic() + WHOLE_S
        while time.monotonic() < deadline:
            with suppress(ClientError):
                partitions = [each for topic in self.topics() for each in topic.partitions]
                if all(each.leader in NODES and len(each.isr) >= in_sync_min for each in partitions):
                    return
            time.sleep(0.05)
        raise Broken(f"not all partitions can be written {WHOLE_S} s after the start")

    # --- invariants of nodes

    def check_words(self, *, is_damaged: bool = False) -> None:
        """Checks that no start found damage that was not inflicted, and that each epoch had one active controller."""
        leaders: dict[str, int] = {}
        words = (FAILED,) if is_damaged else (DAMAGE, FAILED)
        for node in self.nodes.values():
            if bad := [line for line in node.log.splitlines() if any(word in line for word in words)]:
                raise Broken(f"node {node.node_id} said: {bad[0]}")
            for found in ACTIVE.finditer(node.log):
                if leaders.setdefault(found[1], node.node_id) != node.node_id:
                    raise Broken(f"epoch {found[1]} was led by {leaders[found[1]]} and by {node.node_id}")

    def fates(self) -> Iterator[Fate]:
        """Fates of batches: of all rejected ones, and of the first ones."""
        for node in self.nodes.values():
            if node.witness_path.exists():
                with node.witness_path.open(encoding="utf-8") as lines:
                    yield from fates_in(lines)

    def replaced(self) -> int:
        """How many damaged logs were set aside; waits until they are removed."""
        deadline = time.monotonic() + WHOLE_S
        while left := [place for node in self.nodes.values() for place in node.logs.glob("*.damaged")]:
            if time.monotonic() > deadline:
                raise Broken(f"what was set aside is still there: {left}")
            time.sleep(0.1)
        return sum(node.log.count(" it was set aside as ") for node in self.nodes.values())

    def reported_lost(self) -> set[str]:
        """Partitions for which some node has logged that records may be lost."""
        return {found[1] for node in self.nodes.values() for found in LOST.finditer(node.log)}

    def compare(self, report: Report, topics: Sequence[tuple[str, int]] = (*TOPICS, JAVA_TOPIC)) -> None:
        """Checks that all replicas on stopped nodes are equal."""
        for topic, count in topics:
            for index in range(count):
                partition = f"{topic}-{index}"
                ends = {each: end_of(node.logs / partition) for each, node in self.nodes.items()}
                logs = {f"node {each}": ReplicaLog(0, batches_of(n.logs / partition)) for each, n in self.nodes.items()}
                report.add(find_divergence(partition, logs, max(ends.values())))


def _is_of_load(name: str) -> bool:
    return name.rpartition("-")[0] in {topic for topic, _ in (*TOPICS, JAVA_TOPIC)}


def batches_of(directory: Path) -> Iterator[Batch]:
    """Batches of a partition on a stopped disk."""
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for batch in batches(data):
            content = hashlib.sha256(data[batch.position : batch.position + batch.size_bytes]).hexdigest()
            yield Batch(batch.base_offset, batch.last_offset + 1, content)


def end_of(directory: Path) -> int:
    """Log end offset on a stopped disk."""
    last = max(directory.glob("*.log"))
    return max(
        (batch.last_offset + 1 for batch in batches(last.read_bytes())), default=int(last.stem.partition("-")[0])
    )


# --- faults -----------------------------------------------------------------------------------------------------------


class Nemesis:
    """Draws the victim of the next fault, and inflicts it."""

    def __init__(self, town: Town, random: Random) -> None:
        self._town = town
        self._random = random
        self.struck: Counter[str] = Counter()

    def strike(self, kind: str) -> None:
        """Inflicts one fault, from its beginning to its end."""
        {
            KILLS: self._kill,
            POWER_CUTS: self._cut_power,
            ONE_CUTS: lambda: self._crash([self._someone()], CUT),
            CUTS: self._cut_network,
            PAUSES: self._pause,
            ROLLS: self._roll,
            ALL_KILLS: self._kill_all,
            ROTS: self._rot,
        }[kind]()

    def _someone(self) -> int:
        """Draws a leader, the active controller or a follower."""
        who = self._random.choices(("leader", "controller", "follower"), (4, 3, 2))[0]
        self.struck[who] += 1
        if who == "controller":
            return self._town.controller()
        partitions = [each for topic in self._town.topics() for each in topic.partitions]
        partition = self._random.choice(partitions)
        if who == "leader" and partition.leader in NODES:
            return partition.leader
        return self._random.choice([each for each in NODES if each != partition.leader])

    def _kill(self) -> None:
        if self._random.random() < 0.1:
            self.struck["two at once"] += 1
            self._crash(self._random.sample(NODES, 2), signal.SIGKILL)
        else:
            self._crash([self._someone()], signal.SIGKILL)

    def _rot(self) -> None:
        """Flips a bit in some partitions of one node, in files that a start reads."""
        victim = self._town.nodes[self._someone()]
        victim.end(signal.SIGKILL)
        found = [max(place.glob("*.log")) for place in sorted(victim.logs.iterdir()) if _is_of_load(place.name)]
        written = [path for path in found if path.stat().st_size]
        for path in self._random.sample(written, min(len(written), self._random.randint(1, 3))):
            self.struck["bits"] += 1
            with path.open("r+b") as file:
                position = self._random.randrange(path.stat().st_size)
                file.seek(position)
                byte = file.read(1)[0]
                file.seek(position)
                file.write(bytes([byte ^ (1 << self._random.randrange(8))]))
        victim.start()

    def _kill_all(self) -> None:
        self._crash(list(NODES), signal.SIGKILL)

    def _cut_power(self) -> None:
        if self._random.random() < 0.15:
            self.struck["all at once"] += 1
            self._crash(list(NODES), CUT)
        else:
            self._crash([self._someone()], CUT)

    def _crash(self, victims: list[int], number: int) -> None:
        time.sleep(self._random.random() * 0.5)
        for each in victims:
            self._town.nodes[each].send(number)
        for each in victims:
            self._town.nodes[each].wait()
        time.sleep(self._random.choice((0.0, self._random.random(), 2 * self._random.random())))
        for each in victims:
            self._town.nodes[each].start()

    def _pause(self) -> None:
        victim = self._town.nodes[self._someone()]
        victim.send(signal.SIGSTOP)
        time.sleep(self._random.uniform(*FAULT_S))
        victim.send(signal.SIGCONT)

    def _cut_network(self) -> None:
        network = self._town.network
        assert network is not None
        victim = self._someone()
        others = [each for each in NODES if each != victim]
        shape = self._random.choice(("alone", "unheard", "deaf", "one link"))
        self.struck[shape] += 1
        ways = {
            "alone": [(victim, each) for each in others] + [(each, victim) for each in others],
            "unheard": [(victim, each) for each in others],
            "deaf": [(each, victim) for each in others],
            "one link": [(victim, others[0]), (others[0], victim)],
        }[shape]
        for sender, receiver in ways:
            network.cut(sender, receiver)
        time.sleep(self._random.uniform(*FAULT_S))
        network.heal()

    def _roll(self) -> None:
        for each in NODES:
            node = self._town.nodes[each]
            node.end(signal.SIGTERM)
            node.start()
            self._town.until_whole()


# --- campaigns --------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """The result of a campaign."""

    kind: str
    faults: int
    struck: Counter[str]
    seconds: float
    report: Report
    out_of_order: int
    refused: int
    problems: list[str] = field(default_factory=list)
    more: dict[str, int] = field(default_factory=dict)
    """Numbers that only some kinds report."""

    @property
    def is_clean(self) -> bool:
        """Whether there was no anomaly and no problem."""
        return self.report.is_clean and not self.problems

    def text(self) -> str:
        """A summary for people."""
        first = f"{self.kind}: {self.faults} in {self.seconds:.0f} s ({dict(self.struck)})"
        second = f"{self.refused:,} batches refused, {self.out_of_order:,} of them as out of order"
        more = [", ".join(f"{name.replace('_', ' ')} {number:,}" for name, number in self.more.items())]
        return "\n".join([first, second, *filter(None, more), self.report.text(), *self.problems])


def run(
    directory: Path,
    kind: str,
    count: int,
    seed: int,
    *,
    seconds_max: float = math.inf,
    plant: str | None = None,
    rate: float = RATE,
    java_rate: float = JAVA_RATE,
    settings: Mapping[str, str] | None = None,
    writable_s_max: float = WRITABLE_S,
) -> Outcome:
    """Inflicts up to `count` faults under load within `seconds_max`, then checks the remaining state."""
    began = time.monotonic()
    with ExitStack() as stack:
        network = None
        if kind == CUTS:
            network = stack.enter_context(Network(f"pt{os.getpid()}", NODES))
            network.enter()
        lossy_seed = seed if kind in LOSSY else None
        town = Town(directory, network=network, lossy_seed=lossy_seed, plant=plant, settings=settings)
        with town:
            town.until_all_serve()
            configs = REPLICATED if kind in (ONE_CUTS, ALL_KILLS) else SETTINGS
            create_topics(town.bootstrap, (*TOPICS, JAVA_TOPIC), replication_factor=len(NODES), **configs)
            java = (*JAVA_TOPIC, java_rate)
            load = stack.enter_context(Load(town.bootstrap, TOPICS, rate=rate, seed=seed, java=java))
            nemesis = Nemesis(town, Random(seed))
            faults = 0
            waits_s = [0.0]
            while faults < count and time.monotonic() - began < seconds_max and not load.problems:
                town.until_whole()
                await_progress(load)
                nemesis.strike(kind)
                faults += 1
                if kind == ALL_KILLS:
                    waits_s.append(await_writable(town, load))
                _tell(f"{kind}: {faults} of {count}, {load.acked:,} acknowledged, {len(load.problems)} problems")
            town.until_whole()
            report = load.finish(is_spoilt=bool(load.problems))
            town.until_whole()
            replaced = town.replaced()
        town.check_words(is_damaged=kind == ROTS)
        town.compare(report)
        fates = list(town.fates())
    alarms = [f"{each} is reported to have lost records" for each in sorted(town.reported_lost())]
    late = [f"writable only {each:.1f} s after the start" for each in waits_s if each > writable_s_max]
    unordered = [f"out of order without a reason: {each}" for each in unexplained(fates)]
    problems = [*load.problems, *alarms, *late, *unordered]
    out_of_order = sum(each.is_out_of_order for each in fates)
    refused = sum(each.code is not ErrorCode.NONE for each in fates)
    took_s = time.monotonic() - began
    more = {"writable_after_ms_max": round(max(waits_s) * 1000)} if kind == ALL_KILLS else {}
    more |= {"logs_fetched_anew": replaced} if kind == ROTS else {}
    return Outcome(kind, faults, nemesis.struck, took_s, report, out_of_order, refused, problems, more)


def await_writable(town: Town, load: Load) -> float:
    """Seconds from the start of the nodes until everything is writable and a record was acknowledged."""
    began = time.monotonic()
    town.until_writable()
    await_progress(load)
    return time.monotonic() - began


def await_progress(load: Load) -> None:
    """Waits until a record is acknowledged, so that the next fault hits a working cluster."""
    before, deadline = load.acked, time.monotonic() + WHOLE_S
    while load.acked == before and not load.problems:
        if time.monotonic() > deadline:
            raise Broken(f"nothing was acknowledged for {WHOLE_S} s")
        time.sleep(0.01)


def _tell(sentence: str) -> None:
    if sys.stdout.isatty():
        print(f"\r{sentence}   ", end="", flush=True)


def run_wide_cuts(directory: Path, kind: str, count: int, seed: int, **options: Any) -> Outcome:
    from tests.system import wide_cuts  # wide_cuts imports this module

    assert kind == WIDE_CUTS
    return wide_cuts.run(directory, count, seed, **options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = {"kills": KILLS, "power_cuts": POWER_CUTS, "cuts": CUTS, "pauses": PAUSES, "rolls": ROLLS}
    kinds["wide_cuts"] = WIDE_CUTS
    kinds["kills_of_all"] = ALL_KILLS
    kinds["rots"] = ROTS
    for name, kind in kinds.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=0, metavar="COUNT", help=f"faults: {kind}")
    parser.add_argument("--seed", type=int, help="of the first campaign; else one that no recorded run has taken")
    parser.add_argument("--seconds", type=float, default=math.inf, help="then no further fault of this kind follows")
    parser.add_argument("--rate", type=float, default=RATE, help="records per second of librdkafka's writers")
    parser.add_argument("--durability", choices=("fsync", "replicated"), default="fsync", help="of --power-cuts")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="a bug of all nodes")
    parser.add_argument("--keep", type=Path, help="an empty directory for data and logs, which are kept")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    if options.durability == "replicated":
        kinds["power_cuts"] = ONE_CUTS
    for folder in ("src/penstock", "tests/system"):
        compileall.compile_dir(ROOT / folder, quiet=2)  # a start is timed, and an installed Penstock is compiled
    is_clean = True
    for name, kind in kinds.items():
        count = getattr(options, name)
        if not count:
            continue
        seed = options.seed if options.seed is not None else 1 + len(load_runs())
        with tempfile.TemporaryDirectory(prefix="penstock-faults-") as temporary:
            directory = options.keep or Path(temporary)
            outcome = (run_wide_cuts if kind == WIDE_CUTS else run)(
                directory,
                kind,
                count,
                seed,
                seconds_max=options.seconds,
                plant=options.plant,
                rate=options.rate,
            )
        print(outcome.text(), flush=True)
        is_clean = is_clean and outcome.is_clean
        if options.record and options.plant is None:
            write([*load_runs(), _row(outcome, seed)])
    if not is_clean:
        raise SystemExit("not clean")


def _row(outcome: Outcome, seed: int) -> dict[str, Any]:
    counts = outcome.report.counts
    return {
        "kind": outcome.kind,
        "seed": seed,
        "faults": outcome.faults,
        "struck": dict(sorted(outcome.struck.items())),
        "acked": counts.records_acked,
        "read": counts.records_polled,
        "anomalies": sum(outcome.report.anomalies.values()),
        "problems": outcome.problems,
        "refused": outcome.refused,
        "out_of_order": outcome.out_of_order,
        **outcome.more,
        "seconds": round(outcome.seconds),
        "date": datetime.date.today().isoformat(),
        "revision": revision(),
    }


def load_runs() -> list[dict[str, Any]]:
    path = RESULTS / "cluster-faults.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def write(runs: list[dict[str, Any]]) -> None:
    (RESULTS / "cluster-faults.json").write_text(json.dumps(runs, indent=1) + "\n")
    kinds: dict[str, list[dict[str, Any]]] = {}
    for each in runs:
        kinds.setdefault(each["kind"], []).append(each)
    text = f"""# A cluster under real faults

Three nodes, each a broker and a controller in a process of its own on one machine, three replicas of eight partitions,
min.insync.replicas=2. Three librdkafka producers and one in Java write with idempotence and acks=all; two librdkafka
consumers follow everything. One fault after the other, each when all replicas are in sync again:

- **SIGKILL**: of the leader of some partition, of the active controller, of a follower, of two nodes at once; started
  again at once, or up to two seconds later.
- **Power cut**: the same on [lossy disks](../fault-model.md): what was not synced is lost, torn or kept; sometimes of
  all nodes at once. Durability is the default, `fsync`.
- **Power cut of one, `replicated`**: the same, of one node at a time, with topics of durability `replicated`, which
  promises to survive `min.insync.replicas` − 1 of them. A broker that reports a loss is a finding.
- **Power cut of several, `replicated`**: of two nodes, of all, or of one after the other before the last one has caught
  up: more than is promised. Acknowledged records that are not where they were (*lost*) must lie in partitions that
  their leader has reported, behind the offset that it named; while nobody leads them, `penstock cluster health` must
  say why. An operator then has a leader elected. A loss without such a report is a finding, and so is anything at all
  in rounds without a report.
- **SIGKILL of all, `replicated`**: of all processes at once, on ordinary files, with topics of durability
  `replicated`. The machine goes on, so its page cache has everything: nothing may be lost, no broker may report a loss,
  and all partitions must be writable {WRITABLE_S:.0f} s after the nodes are started.
- **SIGKILL and flipped bits**: of one node, in one to three of its logs. The broker finds the damage when it is
  started, leaves the in-sync and the eligible replicas, and fetches the logs anew from their leaders.
- **Network cut**: nodes in network namespaces; one is alone, is heard by nobody, hears nobody, or has lost the link to
  one other, for four to eight seconds. Clients still reach everybody.
- **Pause**: SIGSTOP for four to eight seconds, beyond the session of three.
- **Rolling restart**: SIGTERM to one node after the other; each restart of all three is one.

Everything is checked by [`penstock.verify`](../verify.md): no acknowledged record lost, doubled or out of order,
offsets never going back, nobody given up; the replicas on the stopped disks are equal, no epoch has had two active
controllers, no start has found damage, and every OUT_OF_ORDER_SEQUENCE_NUMBER followed a batch that had been refused so
that its producer sends it again. Anything else is a finding.

Together:

{HEAD}
|---|--:|---|--:|--:|--:|--:|--:|
{chr(10).join(_cells(some) for some in kinds.values())}

Piece by piece:

{HEAD} Date | Revision | Seed |
|---|--:|---|--:|--:|--:|--:|--:|---|---|--:|
{chr(10).join(f"{_cells([each])} {each['date']} | {each['revision']} | {each['seed']} |" for each in runs)}

{_remarks(runs)}`./dev campaign cluster-faults --kills 100` adds to these tables; Python {platform.python_version()},
2 shared cores, 24 GiB. No finding in n faults means, at 95 %, fewer than 3 in n. The same with a bug in the nodes must
fail, as `python -m tests.system.cluster_faults --power-cuts 10 --plant ack-before-sync`.
"""
    (RESULTS / "cluster-faults.md").write_text(text)


def _remarks(runs: list[dict[str, Any]]) -> str:
    """Explanations of findings, where they were recorded."""
    told = [f"- Seed {each['seed']}, {each['kind']}: {each['remark']}" for each in runs if "remark" in each]
    return "".join(["What findings were:\n\n", *(f"{each}\n" for each in told), "\n"]) if told else ""


def _cells(runs: list[dict[str, Any]]) -> str:
    """A table row that adds up pieces of one kind."""
    faults, acked, read, out_of_order, seconds = (
        sum(each[name] for each in runs) for name in ("faults", "acked", "read", "out_of_order", "seconds")
    )
    struck: Counter[str] = Counter()
    for each in runs:
        struck.update(each["struck"])
    of_them = ", ".join(f"{count} {who}" for who, count in struck.most_common())
    findings = sum(each["anomalies"] + len(each["problems"]) for each in runs)
    if any("lost" in each for each in runs):
        lost = sum(each.get("lost", 0) for each in runs)
        partitions = sum(each.get("partitions_reported", 0) for each in runs)
        of_them += f"; {lost:,} records lost, {partitions:,} partitions that reported it"
    if any("writable_after_ms_max" in each for each in runs):
        longest_s = max(each["writable_after_ms_max"] for each in runs) / 1000
        of_them = f"writable {longest_s:.1f} s after the start at the latest"
    if any("logs_fetched_anew" in each for each in runs):
        of_them += f"; {sum(each['logs_fetched_anew'] for each in runs):,} logs fetched anew"
    cells = (f"{faults:,}", of_them, f"{acked:,}", f"{read:,}", f"{out_of_order:,}", str(findings), f"{seconds:,}")
    return f"| {runs[0]['kind']} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
