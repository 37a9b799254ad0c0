"""The long runs that `./dev simulate`, `./dev mutants`, `./dev campaign` and `./dev bench` can start.

    python -m tests.campaigns simulate                  lists the kinds of worlds
    python -m tests.campaigns simulate raft 1000        starts one

Each family has kinds. Each kind is a program of its own, started with `python -m`; most of them write a page of
docs/results. Arguments after the kind are passed to that program unchanged; the table defines which arguments are
added. A family without a kind, or with one that does not exist, lists its kinds and exits with 2.

Invariant: this module imports no program. A list must not need Spark, Java or a client library.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

Shape = Callable[[Sequence[str]], list[str]]
"""Turns the user's arguments after the kind into the arguments of the program."""


def as_given(given: Sequence[str]) -> list[str]:
    return list(given)


def with_record(given: Sequence[str]) -> list[str]:
    """Adds the run to the results, unless the program refuses."""
    return ["--record", *given]


def new_worlds(count: int) -> Shape:
    """`[COUNT]`: that number of new worlds, recorded. `FIRST END`: these seeds, recorded with --record."""

    def shape(given: Sequence[str]) -> list[str]:
        match [*given]:
            case [first, end, *_] if first.isdigit() and end.isdigit():
                return list(given)
            case [number, *rest] if number.isdigit():
                return ["next", number, "--record", *rest]
        return ["next", str(count), "--record", *given]

    return shape


def seeds(*always: str) -> Shape:
    """`[FIRST [END]]`: the seeds from 0 to 10,000 unless others are given."""

    def shape(given: Sequence[str]) -> list[str]:
        match [*given]:
            case [first, end, *rest] if first.isdigit() and end.isdigit():
                return [first, end, *always, *rest]
            case [first, *rest] if first.isdigit():
                return [first, "10000", *always, *rest]
        return ["0", "10000", *always, *given]

    return shape


def fuzz_target(given: Sequence[str]) -> list[str]:
    """`TARGET [RUNS]`: a million inputs unless another number is given."""
    match [*given]:
        case [target, runs, *rest] if runs.isdigit():
            return [target, "--runs", runs, "--record", *rest]
        case [target, *rest] if not target.startswith("-"):
            return [target, "--runs", "1000000", "--record", *rest]
    return list(given)


def client_matrix(given: Sequence[str]) -> list[str]:
    matrix = "tests/compatibility/test_client_matrix.py"
    return ["-q", "-n", "2", "--dist", "loadgroup", "--record-compatibility", matrix, *given]


def shop(given: Sequence[str]) -> list[str]:
    return ["--picture", "docs/pictures/shop.svg", *given]


@dataclass(frozen=True, slots=True)
class Kind:
    """One program, and its entry in the list."""

    module: str
    does: str
    """A sentence that describes a run."""
    takes: str
    """Duration of a run on two cores with the default arguments."""
    page: str = ""
    """The page that it writes, under docs/. Empty: it prints."""
    shape: Shape = with_record
    usage: str = ""
    """Arguments after the kind, besides options of the program."""
    has_charts: bool = False
    """Whether it needs the dependency group bench."""
    changes_pages: bool = False
    """Whether other pages are made from its results: docs.pages runs after it."""


SIMULATE: Final = {
    "toy": Kind(
        "tests.simulation.toy.seeds",
        "Worlds of a toy service, each run twice and compared.",
        "7 minutes for 10,000",
        shape=seeds("--twice"),
        usage="[FIRST [END]]",
    ),
    "power-cuts": Kind(
        "tests.simulation.log.campaign",
        "Random lives of a log on a lossy disk, of six kinds.",
        "10 to 40 minutes for 20,000 of each",
        "results/power-cuts.md",
    ),
    "raft": Kind(
        "tests.simulation.raft_core",
        "Worlds of raft cores, 60 virtual seconds each.",
        "12 minutes for 10,000",
        "results/raft-simulation.md",
        new_worlds(10_000),
        "[COUNT | FIRST END]",
    ),
    "controller": Kind(
        "tests.simulation.controller_core",
        "Worlds of controller cores and simulated brokers, without a quorum.",
        "17 minutes for 10,000",
        "results/controller-simulation.md",
        new_worlds(10_000),
        "[COUNT | FIRST END]",
    ),
    "cluster": Kind(
        "tests.simulation.controllers_on_quorum",
        "Worlds of raft and controller cores with simulated brokers, 60 virtual seconds each.",
        "13 minutes for 10,000",
        "results/cluster-simulation.md",
        new_worlds(10_000),
        "[COUNT | FIRST END]",
    ),
    "replication": Kind(
        "tests.simulation.replication_core",
        "Worlds of replicas under the real controller, 60 virtual seconds each.",
        "11 minutes for 10,000",
        "results/replication-simulation.md",
        new_worlds(10_000),
        "[COUNT | FIRST END]",
    ),
    "group": Kind(
        "tests.simulation.groups_core",
        "Worlds of group coordinators and consumers, 60 virtual seconds each.",
        "4 minutes for 10,000",
        "results/group-simulation.md",
        new_worlds(10_000),
        "[COUNT | FIRST END]",
    ),
    "node": Kind(
        "tests.simulation.one_server",
        "Worlds of one whole node with its clients.",
        "50 minutes for 10,000",
        "results/node-simulation.md",
        seeds("--record"),
        "[FIRST [END]]",
    ),
    "servers": Kind(
        "tests.simulation.three_servers",
        "Worlds of three whole servers under topic churn.",
        "2 minutes for 200",
        "results/servers-simulation.md",
        new_worlds(200),
        "[COUNT | FIRST END]",
    ),
    "replicas": Kind(
        "tests.simulation.replicating_servers",
        "Worlds of three whole servers with replicas, 20 virtual seconds each.",
        "15 minutes for 1,000",
        "results/replicas-simulation.md",
        new_worlds(1_000),
        "[COUNT | FIRST END]",
    ),
    "upheavals": Kind(
        "tests.simulation.replicating_servers.upheavals",
        "The same with a fourth server, moves, retention, lost disks, bit rot and requests that are delivered twice.",
        "23 minutes for 1,000",
        "results/upheavals-simulation.md",
        new_worlds(1_000),
        "[COUNT | FIRST END]",
    ),
    "coordinators": Kind(
        "tests.simulation.coordinating_servers",
        "Worlds of three whole servers that coordinate groups, 22 virtual seconds each.",
        "17 minutes for 1,000",
        "results/coordinators-simulation.md",
        new_worlds(1_000),
        "[COUNT | FIRST END]",
    ),
    "balance": Kind(
        "tests.simulation.controller_core.balance",
        "A fourth broker joins three with 3,000 partitions, another leaves.",
        "half a minute",
        "results/balance.md",
    ),
    "big-cluster": Kind(
        "tests.simulation.hundred_brokers",
        "A hundred simulated brokers on a quorum, with 100,000 partitions.",
        "3 minutes",
        "results/big-cluster.md",
        changes_pages=True,
    ),
    "compiled": Kind(
        "tests.simulation.kit.compiled",
        "No world: a copy of this project in which worlds of cores run almost twice as fast.",
        "some minutes",
        shape=as_given,
        usage="DIRECTORY",
    ),
}

MUTANTS: Final = {
    "raft": Kind(
        "tests.simulation.raft_core.mutants",
        "Raft with one rule taken out at a time: how many worlds it takes to notice.",
        "some minutes",
        "results/raft-mutants.md",
    ),
    "controller": Kind(
        "tests.simulation.controller_core.mutants",
        "The same of the controller.",
        "some minutes",
        "results/controller-mutants.md",
    ),
    "cluster": Kind(
        "tests.simulation.controllers_on_quorum.mutants",
        "The same of controllers on a quorum.",
        "some minutes",
        "results/cluster-mutants.md",
    ),
    "replication": Kind(
        "tests.simulation.replication_core.mutants",
        "The same of replication.",
        "some minutes",
        "results/replication-mutants.md",
    ),
    "group": Kind(
        "tests.simulation.groups_core.mutants",
        "The same of groups.",
        "some minutes",
        "results/group-mutants.md",
    ),
    "overlap": Kind(
        "tests.simulation.log.overlap_mutants",
        "The same of logs, in histories whose operations overlap.",
        "some minutes",
        "results/overlap-mutants.md",
    ),
    "planted": Kind(
        "tests.simulation.planted",
        "Subtle bugs in log, replication, server and groups: which test notices which.",
        "a minute",
        "results/planted-bugs.md",
    ),
}

CAMPAIGN: Final = {
    "crashes": Kind(
        "tests.system.crash",
        "Kills and power cuts of the real server under librdkafka's load.",
        "20 minutes",
        "results/crashes.md",
    ),
    "full-disks": Kind(
        "tests.system.disk_full",
        "Fills of a 64 MB file system, on tmpfs and on ext4; needs root.",
        "2 minutes",
        "results/disk-full.md",
    ),
    "quorum-kills": Kind(
        "tests.system.quorum_kills",
        "Kills and power cuts of real controllers under topic churn.",
        "10 minutes",
        "results/quorum-kills.md",
    ),
    "cluster-faults": Kind(
        "tests.system.cluster_faults",
        "Kills, power cuts, network cuts, pauses and rolling restarts of nodes with replicas: say how many of each.",
        "6 seconds a kill",
        "results/cluster-faults.md",
    ),
    "steady-log": Kind(
        "tests.system.steady_log",
        "What three nodes log under a steady load: --minutes 60.",
        "an hour",
        "results/steady-log.md",
    ),
    "deletion-kills": Kind(
        "tests.system.deletion_kills",
        "DeleteRecords while leaders are killed right after the acknowledgement.",
        "9 minutes for 100 kills",
        "results/deletion-kills.md",
    ),
    "group-storm": Kind(
        "tests.system.group_storm",
        "200 members of six groups come, go and are killed while their coordinators are killed.",
        "15 minutes; less with --seconds",
        "results/group-storm.md",
    ),
    "client-failover": Kind(
        "tests.system.client_failover",
        "How long a client waits after the leader of its partition was killed, beside Apache Kafka.",
        "4 minutes, and 17 for Kafka",
        "results/client-failover.md",
    ),
    "controller-failover": Kind(
        "tests.system.controller_failover",
        "How long nobody can change the cluster after its controller was killed, beside Apache Kafka.",
        "8 minutes",
        "results/controller-failover.md",
        changes_pages=True,
    ),
    "rolling-upgrade": Kind(
        "tests.system.rolling_upgrade",
        "Rolling upgrades of three nodes from builds with lower feature levels, under load.",
        "1 minute each",
        "results/rolling-upgrade.md",
    ),
    "balance": Kind(
        "tests.system.balance",
        "A fourth real broker joins three with 600 partitions under load, another leaves.",
        "4 minutes",
        "results/balance-real.md",
    ),
    "density": Kind(
        "tests.system.density",
        "Many partitions on three brokers, one of which is killed.",
        "5 minutes",
        "results/density.md",
        changes_pages=True,
    ),
    "thirty": Kind(
        "tests.system.thirty",
        "Thirty real nodes on this machine, started, written to, killed and stopped.",
        "1 minute",
        "results/thirty.md",
        changes_pages=True,
    ),
    "verify": Kind(
        "tests.system.verify_table",
        "`penstock verify` on Penstock, on Apache Kafka and on nodes with a bug, while nodes are killed.",
        "9 minutes",
        "results/verify.md",
    ),
    "budgets": Kind(
        "tests.system.hostile_requests",
        "Requests that are built to cost most, of every API and version, to a node that measures itself.",
        "an hour",
        "results/budgets.md",
    ),
    "fuzz": Kind(
        "tests.fuzz.run",
        "A million hostile inputs for one fuzz target.",
        "up to 40 minutes",
        "results/fuzz.md",
        fuzz_target,
        "TARGET [RUNS]",
    ),
    "compatibility": Kind(
        "pytest",
        "Every client of the matrix does all that it offers.",
        "some minutes",
        "compatibility.md",
        client_matrix,
    ),
    "migration": Kind(
        "tests.compatibility.migration",
        "A cut-over of ten topics from Apache Kafka and back with MirrorMaker 2, under live clients.",
        "2 minutes",
        "results/migration.md",
    ),
    "lake-kills": Kind(
        "tests.spark.lake.campaign",
        "Kills of drivers, executors, Workers and brokers under a lake, and zombies: say how many of each.",
        "20 to 30 seconds a kill",
        "results/lake-kills.md",
    ),
    "shop": Kind(
        "tests.spark.shop",
        "examples/shop on a cluster, an executor and the broker killed midway.",
        "some minutes",
        "pictures/shop.svg",
        shop,
    ),
}

BENCH: Final = {
    "micro": Kind(
        "benchmarks.micro",
        "One piece of code against another, in microseconds: all of benchmarks/micro.",
        "some minutes",
        shape=as_given,
    ),
    "side-by-side": Kind(
        "benchmarks.side_by_side",
        "Penstock beside Apache Kafka under the same load; in several runs with --rows.",
        "minutes a row",
        "results/side-by-side.md with --record",
        as_given,
        has_charts=True,
        changes_pages=True,
    ),
    "against": Kind(
        "benchmarks.side_by_side.against",
        "These sources beside an earlier revision of them, by cost.",
        "minutes a row",
        "results/before-after.md with --record",
        as_given,
        "REVISION",
    ),
    "growth": Kind(
        "benchmarks.side_by_side.growth",
        "How cost grows with partitions, connections, topics and sizes; in several runs with --series.",
        "minutes a series",
        "results/growth.md with --record",
        as_given,
        has_charts=True,
        changes_pages=True,
    ),
    "groups": Kind(
        "benchmarks.groups",
        "Groups beside Apache Kafka: commits, loading, coming together, scaling.",
        "half an hour",
        "results/groups.md with --record",
        as_given,
    ),
    "spark": Kind(
        "benchmarks.spark",
        "The Spark source beside Spark's Kafka connector; in several runs with --rows.",
        "minutes a row",
        "results/spark.md with --record",
        as_given,
    ),
    "lake": Kind(
        "benchmarks.lake",
        "Lakes beside Spark's connector with delta-spark, and audits.",
        "some minutes",
        "results/lake.md with --record",
        as_given,
    ),
    "controller-scale": Kind(
        "benchmarks.micro.bench_controller",
        "A million partitions in one controller.",
        "some minutes",
        "results/controller-scale.md",
        changes_pages=True,
    ),
}

FAMILIES: Final[Mapping[str, Mapping[str, Kind]]] = {
    "simulate": SIMULATE,
    "mutants": MUTANTS,
    "campaign": CAMPAIGN,
    "bench": BENCH,
}


def listing(family: str) -> str:
    """The kinds of a family, a line each."""
    lines = [f"./dev {family} KIND [ARGUMENTS]: the kinds are"]
    kinds = FAMILIES[family]
    calls = {name: f"{name} {kind.usage}" for name, kind in kinds.items()}
    width = max(map(len, calls.values()))
    for name, kind in kinds.items():
        page = f"; writes docs/{kind.page}" if kind.page else ""
        lines.append(f"  {calls[name]:<{width}}  {kind.does} ({kind.takes}{page})")
    return "\n".join([*lines, f"Arguments go to the program: ./dev {family} {next(iter(kinds))} --help"])


def commands(kind: Kind, given: Sequence[str]) -> list[list[str]]:
    """The commands to run in order; each runs only if the previous one succeeded."""
    found = [[sys.executable, "-m", kind.module, *kind.shape(given)]]
    if kind.has_charts and find_spec("matplotlib") is None:
        pip = ["pip", "install", "--quiet", "--disable-pip-version-check", "--group", "bench"]
        found.insert(0, [sys.executable, "-m", *pip])
    if kind.changes_pages:
        found.append([sys.executable, "-m", "docs.pages"])
    return found


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] not in FAMILIES:
        print(f"python -m tests.campaigns {'|'.join(FAMILIES)} KIND [ARGUMENTS]", file=sys.stderr)
        return 2
    family, name, given = arguments[0], "".join(arguments[1:2]), arguments[2:]
    kind = FAMILIES[family].get(name)
    if kind is None:
        if name:
            print(f"{family} has no kind {name!r}.", file=sys.stderr)
        print(listing(family), file=sys.stderr)
        return 2
    *first, last = commands(kind, given)
    for command in first:
        status = subprocess.run(command, check=False).returncode
        if status != 0:
            return status if status > 0 else 128 - status
    return os.execv(last[0], last)  # signals reach the program itself, and its exit code is ours


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
