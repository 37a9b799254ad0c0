"""Groups of real members that come, go and are killed while their coordinators are killed, under load.

    python -m tests.system.group_storm --seconds 600 --record
    python -m tests.system.group_storm --members 30 --kills 5 --rebalances 20
    python -m tests.system.group_storm --members 12 --kills 3 --rebalances 5 --plant forget-commits

Three nodes, each a broker and a controller in a process of its own; one topic with three replicas, into which numbered
records are written; six groups that read all of it, two each of the classic protocol (eager), of the same with
cooperative rebalances, and of KIP-848. Members are librdkafka consumers in several processes; a third of them are
static. They join, leave and are restarted, and whole processes of them are killed (SIGKILL). Meanwhile the node that
coordinates some group is killed (SIGKILL) and restarted; the next kill comes when all replicas are in sync. At the end
all groups must reach the end of the topic. Then the diaries of all members are compared (`group_diaries.py`): no
partition assigned twice in one generation or epoch or owned by two members at the same time, no acknowledged commit
lost, no record skipped. `--record` adds to docs/results/group-storm.md; `--seconds` ends a piece of a longer campaign;
`--plant` gives all nodes a bug that the checks must find.
"""

import argparse
import asyncio
import datetime
import json
import math
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self

import confluent_kafka

from harness.load import CALM, PATIENCE_MS, create_topics
from penstock import Client
from penstock.client.errors import ClientError
from penstock.client.metadata import Topic
from penstock.coordinator.placement import OFFSETS_TOPIC, partition_of
from tests.revision import revision
from tests.system.cluster_faults import ASK_MS, NODES, WHOLE_S, Town
from tests.system.commands import ENVIRONMENT
from tests.system.group_diaries import NOTHING, Diary, Shelf, findings, generations, read_until
from tests.system.group_members import FLAVOURS, SESSION_MS
from tests.system.mortal_node import Broken
from tests.system.plants import PLANTS
from tests.system.quorum_kills import RESULTS
from tests.system.victim import ROOT

TOPIC: Final = "storm"
PARTITIONS: Final = 12
GROUPS: Final = {f"{flavour}-{number}": flavour for flavour in FLAVOURS for number in (1, 2)}
MEMBERS, KILLS, REBALANCES = 200, 100, 500
"""Totals of a full campaign."""
PER_PROCESS: Final = 20
RATE: Final = 200.0
PACE_S: Final = 1.0
"""How long a member reads before it commits."""
CHURN_S: Final = 1.0
"""Average time between two membership changes."""
CALM_S: Final = 180.0
"""Time to reach the end of the topic after the faults stop: sessions expire and all groups rebalance."""
END_S: Final = 90.0
SHOWN_MAX: Final = 20
SETTINGS: Final = {
    "offsets.topic.num.partitions": "6",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
HEAD: Final = (
    "| Members | Coordinator kills | Rebalances | Of them eager, cooperative, KIP-848 | Members killed | Written "
    "| Commits acknowledged | Fetches | Lost by session | Findings | Seconds |"
)


# --- load -------------------------------------------------------------------------------------------------------------


class Numberer(threading.Thread):
    """The only producer: the value of every record is the offset that it must get."""

    def __init__(self, bootstrap: str, rate: float) -> None:
        super().__init__(name="numberer", daemon=True)
        self.ends = [0] * PARTITIONS
        self.acked = 0
        self.problems: list[str] = []
        self._rate = rate
        self._stopping = threading.Event()
        options = {"enable.idempotence": True, "acks": "all", "message.timeout.ms": PATIENCE_MS, "linger.ms": 20}
        self._producer: Any = confluent_kafka.Producer({**CALM, "bootstrap.servers": bootstrap, **options})

    def run(self) -> None:
        sent = 0
        while not self._stopping.is_set():
            self._send(sent % PARTITIONS)
            sent += 1
            self._producer.poll(1 / self._rate)

    def _send(self, partition: int) -> None:
        number = self.ends[partition]
        self.ends[partition] += 1

        def on_delivery(error: Any, message: Any) -> None:
            if error is not None:
                self.problems.append(f"record {number} of partition {partition} was given up: {error}")
            elif message.offset() != number:
                self.problems.append(f"record {number} of partition {partition} lies at {message.offset()}")
            else:
                self.acked += 1

        self._producer.produce(TOPIC, str(number), partition=partition, on_delivery=on_delivery)

    def finish(self) -> None:
        """Stops sending, and waits for the records in flight."""
        self._stopping.set()
        self.join()
        if left := self._producer.flush(WHOLE_S):
            self.problems.append(f"{left} records were never answered")


# --- members ----------------------------------------------------------------------------------------------------------


class Company:
    """A process of members that may be killed."""

    def __init__(self, path: Path, bootstrap: str, pace_s: float) -> None:
        self.path = path
        self.members: dict[str, dict[str, Any]] = {}
        self.names: list[str] = []
        """Names of all members ever started here: some may be about to leave."""
        self._log = path.with_suffix(".log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.group_members", bootstrap, TOPIC, str(path), str(pace_s)],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
        )

    def start(self, spec: dict[str, Any]) -> None:
        self.members[spec["name"]] = spec
        self.names.append(spec["name"])
        self._tell(do="start", **spec)

    def stop(self, name: str) -> dict[str, Any]:
        self._tell(do="stop", name=name)
        return self.members.pop(name)

    def restart(self, name: str) -> None:
        self._tell(do="restart", name=name)

    def kill(self) -> None:
        """Kills all its members at once, without a LeaveGroup."""
        self._process.kill()
        self._process.wait()
        self._close()

    def finish(self) -> list[str]:
        """Lets all members leave; returns what went wrong."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            code = -1
        self._close()
        said = self.path.with_suffix(".log").read_text(errors="replace")[-1000:]
        return [f"{self.path.stem} ended with {code}: {said}"] if code else []

    def abandon(self) -> None:
        """Kills the process if it still runs."""
        if self._process.poll() is None:
            self.kill()

    def _close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._log.close()

    def _tell(self, **command: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()


class Crowd(threading.Thread):
    """All members; while the thread runs, members come and go."""

    def __init__(self, directory: Path, bootstrap: str, members: int, random: Random, pace_s: float) -> None:
        super().__init__(name="crowd", daemon=True)
        self.done: Counter[str] = Counter()
        self.members_killed = 0
        self.problems: list[str] = []
        self.is_stopping = threading.Event()
        self._directory = directory
        self._address = bootstrap
        self._random = random
        self._pace_s = pace_s
        self._churn_s = CHURN_S
        self._companies: list[Company] = []
        self._processes = self._named = 0
        self._vacant: list[dict[str, Any]] = []
        specs = [self._spec(list(GROUPS)[number % len(GROUPS)], number) for number in range(members)]
        random.shuffle(specs)
        size = min(PER_PROCESS, max(1, members // 3))
        for start in range(0, members, size):
            self._found(specs[start : start + size])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.is_stopping.set()
        if self.is_alive():
            self.join()
        for each in self._companies:
            each.abandon()

    def _spec(self, group: str, number: int) -> dict[str, Any]:
        instance = f"{group}-static-{number}" if (number // len(GROUPS)) % 3 == 0 else None
        return {"name": f"m{number}", "group": group, "flavour": GROUPS[group], "instance": instance}

    def _found(self, specs: list[dict[str, Any]]) -> None:
        self._processes += 1
        company = Company(self._directory / f"company-{self._processes}.diary", self._address, self._pace_s)
        self._companies.append(company)
        for each in specs:
            company.start(each)

    # --- coming and going

    def run(self) -> None:
        try:
            while not self.is_stopping.wait(self._churn_s * 2 * self._random.random()):
                self._churn()
        except OSError as error:
            self.problems.append(f"a process of members is gone: {error!r}")

    def _churn(self) -> None:
        random = self._random
        company = random.choice(self._companies)
        what = random.choices(("leave", "join", "static restart", "kill"), (4, 4, 3, 0.6))[0] if self.done else "kill"
        statics = [name for name, spec in company.members.items() if spec["instance"]]
        dynamics = [name for name, spec in company.members.items() if not spec["instance"]]
        if what == "leave" and dynamics:
            self._vacant.append(company.stop(random.choice(dynamics)))
        elif what == "join" and self._vacant:
            self._named += 1
            spec = self._vacant.pop(random.randrange(len(self._vacant)))
            company.start({**spec, "name": f"n{self._named}"})
        elif what == "static restart" and statics:
            company.restart(random.choice(statics))
        elif what == "kill":
            self.kill(company)
        else:
            return
        self.done[what] += 1

    def kill(self, company: Company | None = None) -> None:
        """Kills a process and starts another with as many members; static members keep their instance ids."""
        company = company or self._random.choice(self._companies)
        self._companies.remove(company)
        company.kill()
        self.members_killed += len(company.members)
        with Diary(company.path) as diary:
            diary.write("killed", names=company.names)
        specs = []
        for spec in company.members.values():
            self._named += 1
            specs.append({**spec, "name": f"n{self._named}"})
        self._found(specs)

    def finish(self) -> None:
        """Lets all members leave."""
        for each in self._companies:
            self.problems += each.finish()


def buried(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries plus an `ended` entry for every life whose process was killed."""
    last: dict[str, dict[str, Any]] = {}
    more = []
    for each in entries:
        if each["kind"] == "began":
            last[each["life"].partition(".")[0]] = each
        elif each["kind"] == "ended":
            last.pop(each["life"].partition(".")[0], None)
        elif each["kind"] == "killed":
            lives = [last.pop(name) for name in each["names"] if name in last]
            more += [{**life, "t": each["t"], "kind": "ended"} for life in lives]
    return [*entries, *more]


# --- the cluster ------------------------------------------------------------------------------------------------------


class Asker:
    """Fetches the offsets of groups as an operator does, with our own client, and writes them to a diary."""

    def __init__(self, bootstrap: str, diary: Diary) -> None:
        self._address = bootstrap
        self._diary = diary

    def offsets(self, group: str) -> dict[int, int]:
        """Retries until there is a response."""
        deadline = time.monotonic() + WHOLE_S
        while True:
            began = time.monotonic_ns()
            try:
                found = asyncio.run(self._ask(group))
            except ClientError as error:
                if time.monotonic() > deadline:
                    raise Broken(f"nobody tells the offsets of {group} for {WHOLE_S:.0f} s: {error}") from None
                time.sleep(0.1)
                continue
            offsets = [[each, found.get(each, NOTHING)] for each in range(PARTITIONS)]
            self._diary.write("fetched", group=group, who="operator", life="operator", began=began, offsets=offsets)
            return found

    async def _ask(self, group: str) -> dict[int, int]:
        async with Client(self._address) as client:
            return await client.committed(TOPIC, group)


def until_whole(town: Town) -> list[Topic]:
    """Waits until all replicas are in sync, including those of the offsets topic."""
    deadline, behind = time.monotonic() + WHOLE_S, "nobody answers"
    while time.monotonic() < deadline:
        try:
            topics: list[Topic] = town.ask(lambda admin: admin.list_topics(with_internal=True, timeout_ms=ASK_MS))
        except ClientError as error:
            behind = str(error)
        else:
            late = [
                f"{topic.name}-{each.index} led by {each.leader}, in sync {sorted(each.isr)}"
                for topic in topics
                for each in topic.partitions
                if len(each.isr) < len(each.replicas) or each.leader not in NODES
            ]
            if not late:
                return topics
            behind = "; ".join(late)
        time.sleep(0.2)
    raise Broken(f"not whole again after {WHOLE_S} s: {behind}")


def coordinator_of(group: str, topics: list[Topic]) -> int:
    """The leader of the group's partition of the offsets topic."""
    partitions = next(topic.partitions for topic in topics if topic.name == OFFSETS_TOPIC)
    wanted = partition_of(group, len(partitions))
    return next(each.leader for each in partitions if each.index == wanted)


# --- a storm ----------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """The result of a storm."""

    members: int
    kills: int
    rebalances: dict[str, int]
    members_killed: int
    done: dict[str, int]
    written: int
    commits: int
    fetches: int
    lost: int
    seconds: float
    findings: list[str] = field(default_factory=list)

    def text(self) -> str:
        """A summary for people."""
        more = [f"... and {len(self.findings) - SHOWN_MAX} more"] if len(self.findings) > SHOWN_MAX else []
        return "\n".join(
            [f"{HEAD}\n{cells(self.members, [vars(self)])}", str(self.done), *self.findings[:SHOWN_MAX], *more]
        )


def run(
    directory: Path,
    *,
    members: int = MEMBERS,
    kills: int = KILLS,
    rebalances: int = REBALANCES,
    seed: int = 1,
    seconds_max: float = math.inf,
    rate: float = RATE,
    pace_s: float = PACE_S,
    calm_s: float = CALM_S,
    plant: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Runs until the requested kills and rebalances or the time limit are reached, then checks the diaries."""
    began = time.monotonic()
    random = Random(seed)
    shelf = Shelf(directory)
    with ExitStack() as stack:
        town = stack.enter_context(Town(directory, plant=plant, settings=SETTINGS))
        town.until_all_serve()
        create_topics(town.bootstrap, [(TOPIC, PARTITIONS)], replication_factor=len(NODES), min_insync_replicas="2")
        load = Numberer(town.bootstrap, rate)
        load.start()
        stack.callback(load.finish)
        asker = Asker(town.bootstrap, stack.enter_context(Diary(directory / "operator.diary")))
        crowd = stack.enter_context(Crowd(directory, town.bootstrap, members, Random(seed + 1), pace_s))
        for group in GROUPS:
            while not asker.offsets(group):
                if time.monotonic() > began + CALM_S:
                    raise Broken(f"nobody in {group} has committed anything after {CALM_S:.0f} s")
                time.sleep(0.2)
        crowd.start()
        killed, seen = 0, 0
        while time.monotonic() - began < seconds_max and (killed < kills or seen < rebalances):
            if load.problems or crowd.problems:
                break
            topics = until_whole(town)
            shelf.read_on()
            seen = sum(map(_rebalances, generations(shelf.entries).values()))
            tell(f"{killed} of {kills} kills, {seen} of {rebalances} rebalances, {load.acked:,} records")
            group = random.choice(list(GROUPS))
            asker.offsets(group)
            if killed >= kills:
                time.sleep(1.0)
                continue
            time.sleep(random.random() * 0.5)
            victim = town.nodes[coordinator_of(group, topics)]
            victim.end(signal.SIGKILL)
            killed += 1
            time.sleep(random.choice((0.0, random.random(), 2 * random.random())))
            victim.start()
            asker.offsets(group)
        crowd.is_stopping.set()
        crowd.join()
        load.finish()
        stuck = _until_all_is_read(asker, load, calm_s)
        crowd.finish()
    town.check_words()
    shelf.read_on()
    entries = buried(shelf.entries)
    found = [*load.problems, *crowd.problems, *stuck, *findings(entries)]
    if not stuck:
        until = read_until(entries)
        found += [
            f"never read: {group} has read partition {partition} up to {until.get((group, partition), 0)} of {end}"
            for group in GROUPS
            for partition, end in enumerate(load.ends)
            if until.get((group, partition), 0) < end
        ]
    counts = Counter(each["kind"] for each in entries)
    by_flavour: dict[str, int] = dict.fromkeys(FLAVOURS, 0)
    for group, some in generations(entries).items():
        by_flavour[GROUPS[group]] += _rebalances(some)
    took_s = time.monotonic() - began
    return Outcome(
        members,
        killed,
        by_flavour,
        crowd.members_killed,
        dict(crowd.done),
        load.acked,
        counts["committed"],
        counts["fetched"],
        counts["lost"],
        took_s,
        found,
    )


def _rebalances(seen: set[int]) -> int:
    """The first generation is not a rebalance."""
    return len(seen) - 1


def _until_all_is_read(asker: Asker, load: Numberer, calm_s: float) -> list[str]:
    """Waits until all groups have committed the end of all partitions; returns what is missing at the deadline."""
    deadline = time.monotonic() + calm_s
    wanted = dict(enumerate(load.ends))
    while True:
        behind = {}
        for group in GROUPS:
            offsets = asker.offsets(group)
            late = {each: (offsets.get(each, -1), end) for each, end in wanted.items() if offsets.get(each, -1) < end}
            if late:
                behind[group] = late
        if not behind:
            return []
        if time.monotonic() > deadline:
            return [f"stuck: {group} after {calm_s:.0f} s of calm: {late}" for group, late in behind.items()]
        time.sleep(0.5)


# --- results ----------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=MEMBERS, help="of all groups together")
    parser.add_argument("--kills", type=int, default=KILLS, help="of coordinators")
    parser.add_argument("--rebalances", type=int, default=REBALANCES, help="generations and epochs that members saw")
    parser.add_argument("--seconds", type=float, default=math.inf, help="then the calm begins, however far it is")
    parser.add_argument("--seed", type=int, help="else one that no recorded run has taken")
    parser.add_argument("--rate", type=float, default=RATE, help="records per second")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="a bug of all nodes; nothing is recorded")
    parser.add_argument(
        "--keep",
        type=Path,
        help="a new directory for data, logs and diaries; else they are kept only if something is found",
    )
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # no process is left running
    seed = options.seed if options.seed is not None else 1 + len(load_runs())
    directory = options.keep or Path(tempfile.mkdtemp(prefix="penstock-storm-"))
    directory.mkdir(parents=True, exist_ok=True)
    outcome = run(
        directory,
        members=options.members,
        kills=options.kills,
        rebalances=options.rebalances,
        seed=seed,
        seconds_max=options.seconds,
        rate=options.rate,
        plant=options.plant,
        tell=_tell,
    )
    if not outcome.findings and options.keep is None:
        shutil.rmtree(directory)
    print(outcome.text(), flush=True)
    if options.record and options.plant is None:
        date = datetime.date.today().isoformat()
        more = {"seconds": round(outcome.seconds), "seed": seed, "date": date, "revision": revision()}
        write([*load_runs(), vars(outcome) | more])
    if outcome.findings:
        raise SystemExit(f"not clean: data, logs and diaries are in {directory}")


def _tell(sentence: str) -> None:
    if sys.stdout.isatty():
        print(f"\r{sentence}   ", end="", flush=True)


def load_runs() -> list[dict[str, Any]]:
    path = RESULTS / "group-storm.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def write(runs: list[dict[str, Any]]) -> None:
    """Writes the page; explanations of findings are in the runs file under `told`."""
    (RESULTS / "group-storm.json").write_text(json.dumps(runs, indent=1) + "\n")
    learned = "".join(f"**Seed {each['seed']}**: {each['told']}\n\n" for each in runs if "told" in each)
    text = f"""# Groups in a storm

Three nodes, each a broker and a controller in a process of its own on one machine; a topic of {PARTITIONS} partitions
with three replicas, into which one idempotent producer writes numbered records; six groups that each read all of it:
two of the classic protocol (eager), two with cooperative rebalances, two of KIP-848. All members are librdkafka
consumers, in several processes; a third of them are static. They join and leave, static ones are restarted, whole
processes of them are killed. Meanwhile the node that coordinates some group is killed (SIGKILL) and started again, at
once or up to two seconds later; the next one when all replicas are in sync. Then calm: every group has to reach the
end.

Checked from the diaries of all members and of an operator who asks for offsets: no partition is assigned twice in one
generation or epoch, or had by two members at the same time (but for members whose session had run out, which are
counted: *lost by session*); no fetch shows an offset older than one whose commit was acknowledged before it; nothing is
committed that nobody in the group had read, and every group reads every record. Anything else is a finding.

{HEAD} Date | Revision | Seed |
|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|---|---|--:|
{cells(max((each["members"] for each in runs), default=0), runs)} | | |
{chr(10).join(f"{cells(n['members'], [n])} {n['date']} | {n['revision']} | {n['seed']} |" for n in runs)}

{learned}The first line has all pieces together. `./dev campaign group-storm` adds to this table; Python
{platform.python_version()}, 2 shared cores, 24 GiB. No finding in n kills means, at 95 %, fewer than 3 in n. The same
with a bug in the nodes must fail, as `python -m tests.system.group_storm --members 12 --kills 3 --rebalances 5 --plant
forget-commits`.
"""
    (RESULTS / "group-storm.md").write_text(text)


def cells(members: int, runs: list[dict[str, Any]]) -> str:
    """A table row that adds up pieces."""
    names = ("kills", "members_killed", "written", "commits", "fetches", "lost", "seconds")
    sums = {name: sum(each[name] for each in runs) for name in names}
    flavours = [sum(each["rebalances"][flavour] for each in runs) for flavour in FLAVOURS]
    shown = (
        f"{members:,}",
        f"{sums['kills']:,}",
        f"{sum(flavours):,}",
        ", ".join(f"{each:,}" for each in flavours),
        *(f"{sums[name]:,}" for name in ("members_killed", "written", "commits", "fetches", "lost")),
        f"{sum(len(each['findings']) for each in runs):,}",
        f"{sums['seconds']:,.0f}",
    )
    return f"| {' | '.join(shown)} |"


if __name__ == "__main__":
    main()
