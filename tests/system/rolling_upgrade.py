"""Rolling upgrades of three nodes from a build with lower feature levels, under a real load.

    python -m tests.system.rolling_upgrade --rolls 5 --record

All nodes begin with an older build: a copy of the package with a lower maximum metadata.version, without
eligible.leader.replicas.version (`older_build`). Each roll moves them to the next build, the last one to the present
sources: one node after the other is stopped (SIGTERM) and restarted, the active controller last; the next one follows
when all replicas are in sync again. Half-way one node goes back to the old build and forward again, and `penstock
cluster features --raise` is rejected, because some nodes do not support the level yet. When all have the new build it
raises the levels; from then on a node of the old build is rejected, and reports what to do. All of this happens under
acks=all with idempotence: 0 delivery failures, nothing lost, duplicated or out of order, replicas equal on the stopped
disks.

`--record` adds to docs/results/rolling-upgrade.md. `--careless` does what no operator should do: two nodes are paused,
all are killed at once, and those two restart first; with `--plant commit-alone` and with `--patience` it must fail.
"""

import argparse
import datetime
import json
import platform
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from harness.load import PATIENCE_MS, Load, create_topics
from penstock.client.admin.features import FeaturesDescription
from penstock.verify.report import Report
from tests.revision import revision
from tests.system.cluster_faults import (
    ASK_MS,
    JAVA_RATE,
    JAVA_TOPIC,
    NODES,
    RATE,
    RESULTS,
    SETTINGS,
    TOPICS,
    WHOLE_S,
    Town,
    await_progress,
)
from tests.system.commands import ENVIRONMENT, PENSTOCK
from tests.system.density import say
from tests.system.mortal_node import END_S, Broken
from tests.system.older_build import LEAST, METADATA, MOST, PRESENT, Build, older_build
from tests.system.plants import PLANTS
from tests.system.witness import unexplained

COMMAND_S: Final = 60.0
STILL_S: Final = 0.5
GIVEN_UP: Final = "was given up"
READY: Final = " ready in "
ADVICE: Final = "upgrade this node"
HEAD: Final = (
    "| Upgrades | Levels | Restarts | Raises refused half-way | Old builds kept out | Acknowledged | Read "
    "| Delivery failures | Findings | Seconds | Date | Revision | Seed |"
)


@dataclass
class Outcome:
    """The result of a run."""

    rolls: int
    first_level: int
    restarts: int
    raises_refused: int
    kept_out: int
    seconds: float
    report: Report
    problems: list[str]

    @property
    def delivery_failures(self) -> int:
        """Records that a producer gave up."""
        return sum(GIVEN_UP in each for each in self.problems)

    @property
    def is_clean(self) -> bool:
        """Whether there was no anomaly and no problem."""
        return self.report.is_clean and not self.problems

    def text(self) -> str:
        """A summary for people."""
        levels = f"{METADATA} {self.first_level} to {MOST}"
        first = f"{self.rolls} rolling upgrades, {levels}, {self.restarts} restarts in {self.seconds:.0f} s"
        second = f"{self.raises_refused} raises refused half-way, {self.kept_out} nodes of an old build kept out"
        return "\n".join([first, second, self.report.text(), *self.problems])


def check_levels(found: FeaturesDescription, wanted: Mapping[str, int]) -> None:
    """Checks that every node reports these levels as in force."""
    for node_id, node in found.nodes.items():
        if node.in_force != wanted:
            raise Broken(f"{wanted} should be in force, and node {node_id} says {dict(node.in_force)}")


def check_kept_out(file: Path, build: Build) -> None:
    """Checks that `penstock server` with this build is rejected, exits by itself, and reports what to do."""
    process = subprocess.Popen(
        [*PENSTOCK, "server", "--config", str(file)],
        env=ENVIRONMENT | dict(build.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    limit = threading.Timer(COMMAND_S, process.kill)
    limit.start()
    with process:
        try:
            if READY in process.stdout.readline():  # empty if the process ends
                raise Broken("a node of an old build was let in though a level is in force that it does not know")
            code, said = process.wait(END_S), process.stderr.read()
        finally:
            limit.cancel()
            process.kill()
    if code == 0 or ADVICE not in said:
        raise Broken(f"a node that is not let in ended with {code}, and said: {said}")


class Fleet:
    """The nodes of a town while they move from build to build."""

    def __init__(self, town: Town) -> None:
        self._town = town
        self.restarts = self.raises_refused = self.kept_out = 0

    def found(self) -> FeaturesDescription:
        """The features that all nodes report."""
        found: FeaturesDescription = self._town.ask(lambda admin: admin.describe_features(timeout_ms=ASK_MS))
        return found

    def roll(self, old: Build, new: Build, load: Load) -> None:
        """Moves all nodes from one build to the next, then raises the feature levels."""
        left = list(NODES)
        while left:
            await_progress(load)
            controller = self._town.controller()
            node_id = next((each for each in left if each != controller), left[0])
            left.remove(node_id)
            self._restart(node_id, new)
            if len(left) == len(NODES) - 1:
                self._expect_no_raise(new)
                self._restart(node_id, old)  # an operator rolls back, then tries again
                self._restart(node_id, new)
            say(f"node {node_id} runs level {new.level}, {load.acked:,} acknowledged, {len(load.problems)} problems")
        self._raise(new)
        await_progress(load)
        self._keep_out(NODES[0], old, new)

    def _restart(self, node_id: int, build: Build) -> None:
        self._town.nodes[node_id].end(signal.SIGTERM)
        self._start(node_id, build)

    def _start(self, node_id: int, build: Build) -> None:
        node = self._town.nodes[node_id]
        node.build = build
        node.start()
        self.restarts += 1
        self._until_whole(node_id)

    def _until_whole(self, node_id: int) -> None:
        """Also queries the node itself: a node that has just stopped may still be listed."""
        self._town.until_all_serve()
        deadline = time.monotonic() + WHOLE_S
        while (said := self.found().nodes.get(node_id)) is None:
            if time.monotonic() > deadline:
                raise Broken(
                    f"node {node_id} does not serve after {WHOLE_S} s: {self._town.nodes[node_id].log[-2000:]}"
                )
            time.sleep(0.1)
        if said.known[METADATA].most != self._town.nodes[node_id].build.level:
            raise Broken(f"node {node_id} runs another build than it should: it knows {said.known}")
        self._town.until_whole()

    # --- levels

    def _command(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*PENSTOCK, "cluster", "features", *arguments, "-b", self._town.bootstrap],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )

    def _expect_no_raise(self, build: Build) -> None:
        done = self._command("--raise", f"{METADATA}={build.level}")
        if done.returncode != 1 or "upgrade it first" not in done.stderr:
            raise Broken(f"a raise that not every node knows ended with {done.returncode}: {done.stdout}{done.stderr}")
        self.raises_refused += 1

    def _raise(self, build: Build) -> None:
        done = self._command("--raise", "all")
        if done.returncode:
            raise Broken(f"the raise to {build.level} ended with {done.returncode}: {done.stderr}")
        check_levels(self.found(), build.levels)

    def _keep_out(self, node_id: int, old: Build, new: Build) -> None:
        """Checks that a node that restarts with its previous build is rejected."""
        node = self._town.nodes[node_id]
        node.end(signal.SIGTERM)
        check_kept_out(node.file, old)
        self.kept_out += 1
        self._start(node_id, new)

    # --- a careless upgrade

    def fall(self, load: Load) -> None:
        """Pauses two nodes while the third gets more records, kills all, and restarts those two first."""
        await_progress(load)
        *followers, leader = NODES
        for each in followers:
            self._town.nodes[each].send(signal.SIGSTOP)
        time.sleep(STILL_S)
        for each in NODES:
            self._town.nodes[each].end(signal.SIGKILL)
        for each in NODES:
            self._town.nodes[each].build = PRESENT
        for each in followers:
            self._town.nodes[each].start()
        self._until_led_by(followers)
        self.restarts += len(followers)
        self._start(leader, PRESENT)

    def _until_led_by(self, node_ids: Sequence[int]) -> None:
        deadline = time.monotonic() + WHOLE_S
        while any(part.leader not in node_ids for topic in self._town.topics() for part in topic.partitions):
            if time.monotonic() > deadline:
                raise Broken(f"nodes {node_ids} do not lead everything after {WHOLE_S} s")
            time.sleep(0.1)


def run(
    directory: Path,
    rolls: int,
    seed: int,
    *,
    rate: float = RATE,
    java_rate: float = JAVA_RATE,
    patience_ms: int = PATIENCE_MS,
    plant: str | None = None,
    is_careless: bool = False,
) -> Outcome:
    """Runs `rolls` upgrades, each to a build with the next level; `java_rate` 0 omits the producer in Java."""
    began = time.monotonic()
    builds = [*(older_build(directory, level) for level in range(MOST - rolls, MOST)), PRESENT]
    topics = (*TOPICS, JAVA_TOPIC) if java_rate else TOPICS
    town = Town(directory, plant=plant)
    for node in town.nodes.values():
        node.build = builds[0]
    with town:
        town.until_all_serve()
        fleet = Fleet(town)
        check_levels(fleet.found(), builds[0].levels)
        create_topics(town.bootstrap, topics, replication_factor=len(NODES), **SETTINGS)
        town.until_whole()
        java = (*JAVA_TOPIC, java_rate) if java_rate else None
        with Load(town.bootstrap, TOPICS, rate=rate, seed=seed, java=java, patience_ms=patience_ms) as load:
            if is_careless:
                fleet.fall(load)
            else:
                for old, new in pairwise(builds):
                    fleet.roll(old, new, load)
            report = load.finish(is_spoilt=bool(load.problems))
        town.until_whole()
    town.check_words()
    town.compare(report, topics)
    problems = [*load.problems, *(f"out of order without a reason: {each}" for each in unexplained(list(town.fates())))]
    took_s = time.monotonic() - began
    return Outcome(
        rolls, builds[0].level, fleet.restarts, fleet.raises_refused, fleet.kept_out, took_s, report, problems
    )


# --- results ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recorded:
    """One run, as on the page."""

    upgrades: int
    first_level: int
    last_level: int
    restarts: int
    raises_refused: int
    kept_out: int
    acked: int
    read: int
    delivery_failures: int
    findings: int
    seconds: int
    date: str
    revision: str
    seed: int

    def row(self) -> str:
        return (
            f"| {self.upgrades} | {self.first_level} to {self.last_level} | {self.restarts} | {self.raises_refused} "
            f"| {self.kept_out} | {self.acked:,} | {self.read:,} | {self.delivery_failures} | {self.findings} "
            f"| {self.seconds:,} | {self.date} | {self.revision} | {self.seed} |"
        )


def recorded(outcome: Outcome, seed: int) -> Recorded:
    counts = outcome.report.counts
    return Recorded(
        upgrades=outcome.rolls,
        first_level=outcome.first_level,
        last_level=MOST,
        restarts=outcome.restarts,
        raises_refused=outcome.raises_refused,
        kept_out=outcome.kept_out,
        acked=counts.records_acked,
        read=counts.records_polled,
        delivery_failures=outcome.delivery_failures,
        findings=sum(outcome.report.anomalies.values()) + len(outcome.problems),
        seconds=round(outcome.seconds),
        date=datetime.date.today().isoformat(),
        revision=revision(),
        seed=seed,
    )


def load_runs() -> list[Recorded]:
    path = RESULTS / "rolling-upgrade.json"
    return [Recorded(**each) for each in json.loads(path.read_text())] if path.exists() else []


def write(runs: list[Recorded]) -> None:
    (RESULTS / "rolling-upgrade.json").write_text(json.dumps([asdict(each) for each in runs], indent=1) + "\n")
    rows = "\n".join(each.row() for each in runs)
    text = f"""# Rolling upgrades

Three nodes, each a broker and a controller in a process of its own on one machine; three replicas of eight partitions,
min.insync.replicas=2. Three librdkafka producers and one in Java write with idempotence and acks=all; two librdkafka
consumers follow everything. All nodes begin with an older build: the package of the day, copied, with a lower highest
level of {METADATA} and without eligible.leader.replicas.version. So the builds differ in what they tell, register,
record and go along with, not in the rest of their code.

An upgrade brings all nodes to the next build, one after the other, each stopped by SIGTERM, the active controller last,
the next one when all replicas are in sync again. The first node goes back to the old build and forth again; while the
others have the old build, `penstock cluster features --raise` must be refused. When all have the new one, it raises
the levels; then a node that comes back with the old build must be kept out, and say what to do.

Everything is checked by [`penstock.verify`](../verify.md): no acknowledged record lost, doubled or out of order; the
replicas on the stopped disks are equal, no epoch has had two active controllers. A *delivery failure* is a record that
a producer gave up. It is a finding, as is everything else that should not be.

{HEAD}
|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|---|---|--:|
{rows}

`./dev campaign rolling-upgrade --rolls 5` adds to this table; Python {platform.python_version()}, 2 shared cores,
24 GiB. All nodes killed at once with a bug in them, under producers that wait for a second only, must fail, by loss and
by delivery failures: `python -m tests.system.rolling_upgrade --careless --plant commit-alone --patience 1000`.
"""
    (RESULTS / "rolling-upgrade.md").write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rolls", type=int, default=1, choices=range(1, MOST - LEAST + 1), metavar="COUNT")
    parser.add_argument("--seed", type=int, help="else one that no recorded run has taken")
    parser.add_argument("--rate", type=float, default=RATE, help="records per second of librdkafka's writers")
    parser.add_argument("--careless", action="store_true", help="all nodes at once, by SIGKILL")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="a bug of all nodes")
    parser.add_argument("--patience", type=int, default=PATIENCE_MS, metavar="MS", help="until a producer gives up")
    parser.add_argument("--keep", type=Path, help="an empty directory for data and logs, which are kept")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else 1 + len(load_runs())
    with tempfile.TemporaryDirectory(prefix="penstock-upgrade-") as temporary:
        outcome = run(
            options.keep or Path(temporary),
            options.rolls,
            seed,
            rate=options.rate,
            patience_ms=options.patience,
            plant=options.plant,
            is_careless=options.careless,
        )
    print(outcome.text(), flush=True)
    if options.record and not options.careless and options.plant is None:
        write([*load_runs(), recorded(outcome, seed)])
    if not outcome.is_clean:
        raise SystemExit("not clean")


if __name__ == "__main__":
    main()
