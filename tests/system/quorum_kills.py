"""Controllers that are killed, or whose power fails, again and again while topics are created and deleted.

    python -m tests.system.quorum_kills --controllers 3 --count 200 --power-cuts 50 --record

Three or five controllers and a broker, each a process of its own. Kills are SIGKILL on ordinary files; power cuts hit
controllers on lossy disks. Most crashes hit one controller, often the leader; some hit all at once. Then: no two active
controllers in one epoch, every topic whose creation was acknowledged in the metadata log of every controller, none
whose deletion was. `--record` adds to docs/results/quorum-kills.md, `--seconds` ends a piece of a longer campaign,
`--plant` gives the controllers a bug that the checks must find.
"""

import argparse
import asyncio
import datetime
import json
import math
import platform
import re
import signal
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from harness.ports import free_port
from penstock.client.admin.admin import Admin
from penstock.client.admin.quorum import QuorumDescription
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError, Refused, TimedOut
from penstock.host.clock import HostClock
from penstock.host.entropy import HostEntropy
from penstock.log.directory import open_directory
from penstock.metadata.controller import Controller
from penstock.metadata.image import Image
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.errors import ErrorCode
from penstock.raft.replicas import NOBODY
from penstock.raft.settings import QuorumSettings
from penstock.records.header import batches
from penstock.server.host_ports import host_ports
from penstock.server.quorum.metadata_log import records_in
from penstock.server.quorum.quorum_runner import QuorumRunner
from penstock.wire.declare import Request, Response
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from penstock.wire.types import ZERO_UUID
from tests.revision import revision
from tests.system.mortal_node import Broken, MortalNode
from tests.system.plants import PLANTS
from tests.system.victim import CUT, DAMAGE, ROOT

RESULTS: Final = ROOT / "docs" / "results"
KILLS, POWER_CUTS = "SIGKILL", "power cut"
CLUSTER: Final = "kills"
BROKER: Final = 100
REQUEST_MS: Final = 4_000
ALL_AT_ONCE: Final = 0.2
OF_THE_LEADER: Final = 0.6
NEXT_ONE_S: Final = 1.0
READY_S: Final = 90.0
FAILOVER_S: Final = 60.0
"""Fail-over takes under a second on an idle machine; the limit is for a busy one."""
LAST_WORDS_CHARACTERS: Final = 1_000
SNAPSHOT_BYTES: Final = 20_000
HEAD: Final = (
    "| Controllers | Crash | Crashes | Of the leader | Of all at once | Topics made | Deleted | Lost | Epochs "
    "| Possible again, p50 s | p99 s | Seconds | Date | Revision | Seed |"
)
ACTIVE: Final = re.compile(r"Is the active controller, in epoch (\d+);")
FAILED: Final = "FAILED"


R = TypeVar("R", bound=Response)


class Quorum:
    """Controllers and a broker; all are stopped at the end, whatever happens."""

    def __init__(
        self, directory: Path, controllers: int, lossy_seed: int | None = None, plant: str | None = None
    ) -> None:
        ports = {node_id: free_port() for node_id in range(1, controllers + 1)}
        voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in ports.items())
        shared = {
            "cluster.id": CLUSTER,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "metadata.log.max.record.bytes.between.snapshots": str(SNAPSHOT_BYTES),
        }
        self.directory = directory
        self.controllers = {
            node_id: MortalNode(
                directory,
                node_id,
                {
                    **shared,
                    "node.id": str(node_id),
                    "process.roles": "controller",
                    "listeners": f"CONTROLLER://127.0.0.1:{port}",
                    "log.dirs": str(directory / f"node-{node_id}"),
                },
                lossy_seed,
                plant,
            )
            for node_id, port in ports.items()
        }
        self.address = f"127.0.0.1:{free_port()}"
        settings = {
            **shared,
            "node.id": str(BROKER),
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(directory / f"node-{BROKER}"),
        }
        self.broker = MortalNode(directory, BROKER, settings)

    def __enter__(self) -> Self:
        for each in (*self.controllers.values(), self.broker):
            each.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for each in (self.broker, *self.controllers.values()):
            each.stop()

    def check_leaders(self) -> int:
        """Checks that each epoch has at most one active controller; returns the number of epochs."""
        leaders: dict[int, int] = {}
        for node_id, process in self.controllers.items():
            for found in ACTIVE.finditer(process.log):
                if leaders.setdefault(int(found[1]), node_id) != node_id:
                    raise Broken(f"epoch {found[1]} was led by {leaders[int(found[1])]} and by {node_id}")
        return len(leaders)

    def last_words(self) -> str:
        """The last log lines of each node."""
        nodes = (*self.controllers.values(), self.broker)
        return "\n".join(f"node {each.node_id}: ...{each.log[-LAST_WORDS_CHARACTERS:]}" for each in nodes)

    def check_words(self) -> None:
        for process in (*self.controllers.values(), self.broker):
            if bad := [line for line in process.log.splitlines() if DAMAGE in line or FAILED in line]:
                raise Broken(f"node {process.node_id} said: {bad[0]}")


@dataclass
class Promises:
    """The changes that were acknowledged."""

    there: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    made: int = 0
    deleted: int = 0
    is_working: bool = True
    acknowledged: asyncio.Event = field(default_factory=asyncio.Event)

    def is_made(self) -> None:
        self.made += 1
        self.acknowledged.set()

    async def next_one(self) -> None:
        """Returns when a change is acknowledged: a crash now would lose it if it is not durable."""
        self.acknowledged.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(NEXT_ONE_S):
                await self.acknowledged.wait()


async def churn(address: str, promises: Promises, seed: int) -> None:
    """Creates topics and deletes some, until stopped.

    Each request is sent once: one without a response may be carried out much later, so nothing is expected of it.
    """
    random = Random(seed)
    number = 0
    async with Cluster(address, request_timeout_ms=5_000) as cluster:
        while promises.is_working:
            number += 1
            name = f"churn-{seed}-{number}"
            topic = CreatableTopic(
                name=name, num_partitions=random.choice((1, 3)), replication_factor=1, assignments=(), configs=()
            )
            create = CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_MS)
            made = await _ask_once(cluster, create, CreateTopicsResponse)
            if made is None or made.topics[0].error_code is not ErrorCode.NONE:
                await asyncio.sleep(0.05)
                continue
            promises.is_made()
            if random.random() < 0.5:
                promises.there.add(name)
                continue
            state = DeleteTopicState(name=name, topic_id=ZERO_UUID)
            deletion = DeleteTopicsRequest(topics=[state], timeout_ms=REQUEST_MS)
            gone = await _ask_once(cluster, deletion, DeleteTopicsResponse)
            if gone is not None and gone.responses[0].error_code is ErrorCode.NONE:
                promises.gone.add(name)
                promises.deleted += 1


async def _ask_once(cluster: Cluster, request: Request, answer: type[R]) -> R | None:
    try:
        return await cluster.ask_controller(request, answer, lambda _: (), timeout_ms=1)
    except ClientError:
        return None


@dataclass(frozen=True)
class Outcome:
    """The result of a campaign."""

    kind: str
    controllers: int
    crashes: int
    of_leaders: int
    of_all: int
    made: int
    deleted: int
    epochs: int
    seconds: float
    failovers_s: list[float]

    def text(self) -> str:
        p50, p99 = (percentile(self.failovers_s, each) for each in (50, 99))
        return (
            f"{self.controllers} controllers, {self.kind}: {self.crashes} in {self.seconds:.0f} s, "
            f"{self.of_leaders} of the leader, {self.of_all} of all at once; "
            f"{self.made} topics made, {self.deleted} deleted, none lost; {self.epochs} epochs, one leader each; "
            f"changes possible again after p50 {p50:.2f} s, p99 {p99:.2f} s"
        )


def percentile(values: list[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else 0.0


class Campaign:
    """Crashes controllers, one after the other, under churn."""

    def __init__(self, quorum: Quorum, admin: Admin, kind: str, promises: Promises, random: Random) -> None:
        self._quorum = quorum
        self._admin = admin
        self._signal = CUT if kind == POWER_CUTS else signal.SIGKILL
        self._promises = promises
        self._random = random
        self.crashes = 0
        self.of_leaders = 0
        self.of_all = 0
        self.failovers_s: list[float] = []

    async def crash(self) -> None:
        """One crash; returns when all controllers are back."""
        drawn = self._random.random()
        if drawn < ALL_AT_ONCE:
            await self._crash_all()
        else:
            leader = (await self._admin.describe_quorum(timeout_ms=int(FAILOVER_S * 1000))).leader_id
            victim = leader if drawn < OF_THE_LEADER else self._random.choice(list(self._quorum.controllers))
            await self._crash_one(victim, is_leader=victim == leader)
        self.crashes += 1
        self._quorum.check_leaders()
        await until_all_vote(self._admin, len(self._quorum.controllers))

    async def _crash_one(self, victim: int, *, is_leader: bool) -> None:
        await self._some_time()
        await self._promises.next_one()
        self._quorum.controllers[victim].end(self._signal)
        crashed = time.monotonic()
        await self._make_topic()
        if is_leader:
            self.of_leaders += 1
            self.failovers_s.append(time.monotonic() - crashed)
        await self._some_time()
        self._quorum.controllers[victim].start()

    async def _crash_all(self) -> None:
        """Crashes all controllers; everything acknowledged must be on stable storage."""
        self.of_all += 1
        await self._some_time()
        await self._promises.next_one()
        for process in self._quorum.controllers.values():
            process.send(self._signal)
        for process in self._quorum.controllers.values():
            process.wait()
        for process in self._quorum.controllers.values():
            process.start()
        await self._make_topic()

    async def _make_topic(self) -> None:
        name = f"after-{self.crashes}"
        try:
            await make_topic(self._admin, name)
        except TimedOut as error:
            raise Broken(
                f"after crash {self.crashes} nothing can be changed: {error}\n{self._quorum.last_words()}"
            ) from None
        self._promises.there.add(name)

    async def _some_time(self) -> None:
        await asyncio.sleep(self._random.random() * 0.3)


async def run(
    directory: Path,
    controllers: int,
    kind: str,
    count: int,
    seed: int,
    *,
    seconds_max: float = math.inf,
    plant: str | None = None,
) -> Outcome:
    """Crashes controllers up to `count` times under churn within `seconds_max`, then checks the remaining state."""
    began, promises = time.monotonic(), Promises()
    with Quorum(directory, controllers, seed if kind == POWER_CUTS else None, plant) as quorum:
        async with Cluster(quorum.address, request_timeout_ms=5_000, timeout_ms=int(READY_S * 1000)) as cluster:
            admin = Admin(cluster)
            await admin.create_topic("first", 1, 1, timeout_ms=int(READY_S * 1000))
            churning = [asyncio.create_task(churn(quorum.address, promises, seed * 10 + number)) for number in (1, 2)]
            campaign = Campaign(quorum, admin, kind, promises, Random(seed))
            while campaign.crashes < count and time.monotonic() - began < seconds_max:
                await campaign.crash()
                _tell(f"{kind}: {campaign.crashes} of {count}, {promises.made} made")
            promises.is_working = False
            await asyncio.gather(*churning)
            await make_topic(admin, "last")
            promises.there.add("last")
            listed = {topic.name for topic in await admin.list_topics()}
            _compare("the broker", listed, promises)
            promised_end = (await until_all_vote(admin, controllers, lag_max=0)).high_watermark
        epochs = quorum.check_leaders()
        quorum.check_words()
    for node_id, process in quorum.controllers.items():
        end_offset, image = await image_of(process.data, node_id)
        if end_offset < promised_end:
            raise Broken(f"controller {node_id} has {end_offset} records, of {promised_end} that it had acknowledged")
        _compare(f"controller {node_id}", set(image.topics), promises)
    return Outcome(
        kind,
        controllers,
        campaign.crashes,
        campaign.of_leaders,
        campaign.of_all,
        promises.made,
        promises.deleted,
        epochs,
        time.monotonic() - began,
        campaign.failovers_s,
    )


async def make_topic(admin: Admin, name: str) -> None:
    """Returns when the creation is acknowledged."""
    try:
        await admin.create_topic(name, 1, 1, timeout_ms=int(FAILOVER_S * 1000))
    except Refused as refused:
        if refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Broken(f"the broker never heard of {name}, whose making was acknowledged") from None
        if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


async def until_all_vote(admin: Admin, controllers: int, lag_max: int = 20) -> QuorumDescription:
    """Waits until all voters are back and have caught up, so that crashes do not overlap."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        found = await admin.describe_quorum(timeout_ms=int(FAILOVER_S * 1000))
        now_ms = time.time() * 1000
        fresh = [each for each in found.voters if each.log_end_offset >= 0 and now_ms - each.last_fetch_ms < 1_500]
        if len(fresh) == controllers and found.lag_max <= lag_max:
            return found
        await asyncio.sleep(0.05)
    raise Broken(f"not all controllers came back in {READY_S} s: {found}")


def _compare(who: str, names: set[str], promises: Promises) -> None:
    if lost := promises.there - names:
        raise Broken(f"{who} does not know {sorted(lost)[:5]}, which were acknowledged")
    if back := promises.gone & names:
        raise Broken(f"{who} knows {sorted(back)[:5]}, whose deletion was acknowledged")


async def image_of(data: Path, node_id: int) -> tuple[int, Image]:
    """The end offset of a stopped controller's log, and the image at that offset."""
    ports = host_ports(data)
    try:
        directory = await open_directory(
            ports.disk, cluster_id=CLUSTER, node_id=node_id, entropy=HostEntropy(), now_ms=HostClock().wall_ms()
        )
        controller = Controller(node_id, BrokerSettings({}), HostEntropy())
        runner = QuorumRunner(
            directory,
            HostClock(),
            HostEntropy(),
            node_id,
            settings=QuorumSettings(),
            bootstrap=NOBODY,
            lock=asyncio.Lock(),
        )
        await runner.load()
        position = 0
        if runner.shelf.ids:
            position = runner.shelf.ids[-1].end_offset
            for piece in runner.read_snapshot(runner.shelf.ids[-1]):
                for batch in batches(piece):
                    for record in records_in(batch):
                        controller.apply(record)
        while position < runner.end_offset:
            for batch in batches(runner.read(position, 1 << 20)):
                for record in records_in(batch):
                    controller.apply(record)
                position = batch.last_offset + 1
        return position, controller.image
    finally:
        ports.close()


def _tell(sentence: str) -> None:
    if sys.stdout.isatty():
        print(f"\r{sentence}   ", end="", flush=True)


# --- campaigns --------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--controllers", type=int, default=3)
    parser.add_argument("--count", type=int, default=200, help="kills")
    parser.add_argument("--power-cuts", type=int, default=50)
    parser.add_argument("--seed", type=int, help="of the first campaign; else one that no recorded run has taken")
    parser.add_argument("--seconds", type=float, default=math.inf, help="then no further crash follows")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="a bug of the controllers")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    for kind, count in ((KILLS, options.count), (POWER_CUTS, options.power_cuts)):
        if not count:
            continue
        seed = options.seed if options.seed is not None else 1 + len(load_runs())
        with tempfile.TemporaryDirectory(prefix="penstock-quorum-") as directory:
            outcome = asyncio.run(
                run(
                    Path(directory),
                    options.controllers,
                    kind,
                    count,
                    seed,
                    seconds_max=options.seconds,
                    plant=options.plant,
                )
            )
        print(outcome.text(), flush=True)
        if options.record and options.plant is None:
            write([*load_runs(), _row(outcome, seed)])  # other runs may have recorded meanwhile


def _row(outcome: Outcome, seed: int) -> dict[str, Any]:
    return {
        "kind": outcome.kind,
        "controllers": outcome.controllers,
        "seed": seed,
        "crashes": outcome.crashes,
        "of_leaders": outcome.of_leaders,
        "of_all": outcome.of_all,
        "made": outcome.made,
        "deleted": outcome.deleted,
        "epochs": outcome.epochs,
        "failovers_s": [round(each, 2) for each in outcome.failovers_s],
        "seconds": round(outcome.seconds),
        "date": datetime.date.today().isoformat(),
        "revision": revision(),
    }


def load_runs() -> list[dict[str, Any]]:
    path = RESULTS / "quorum-kills.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def write(runs: list[dict[str, Any]]) -> None:
    (RESULTS / "quorum-kills.json").write_text(json.dumps(runs, indent=1) + "\n")
    sums: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for run in runs:
        sums.setdefault((run["controllers"], run["kind"]), []).append(run)
    text = f"""# Kills and power cuts of controllers

Controllers (`process.roles=controller`) and a broker, each a process of its own on one machine, while two clients make
and delete topics as fast as they can. The next crash comes when all have caught up again.

- **SIGKILL**: on ordinary files.
- **Power cut**: on [lossy disks](../fault-model.md) around ordinary files: what was not synced is lost, torn or kept.

Each comes at the moment at which something is acknowledged; four in ten strike whoever leads, two in ten all
controllers at once. At the end every topic whose creation was acknowledged is in the metadata log of every controller,
read from its stopped disk, and none whose deletion was; no epoch has had two active controllers; no start has found
damage. *Possible again* is the time from the crash of the leader to the acknowledgement of a topic that was asked for
right after it; pieces of three and of five controllers may have run beside each other, and beside other work, so that
[controller-failover.md](controller-failover.md) has the better figures.

Together:

{HEAD.replace(" Seconds | Date | Revision | Seed |", " Seconds |")}
|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|
{chr(10).join(_cells(of_kind) for of_kind in sums.values())}

Piece by piece:

{HEAD}
|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|---|--:|
{chr(10).join(f"{_cells([run])} {run['date']} | {run['revision']} | {run['seed']} |" for run in runs)}

`./dev campaign quorum-kills --controllers 3 --count 200 --power-cuts 50` adds to these tables; Python
{platform.python_version()}, 2 shared cores, 24 GiB. The same with a bug in the controllers must fail:
`python -m tests.system.quorum_kills --plant forget-last-changes` (topics are lost), `--plant one-voter-decides` (two
leaders of one epoch), `--plant ack-before-sync --count 0` (a power cut takes what was acknowledged).
"""
    (RESULTS / "quorum-kills.md").write_text(text)


def _cells(runs: list[dict[str, Any]]) -> str:
    """A table row that adds up pieces of one kind."""
    crashes, of_leaders, of_all, made, deleted, epochs, seconds = (
        sum(run[name] for run in runs)
        for name in ("crashes", "of_leaders", "of_all", "made", "deleted", "epochs", "seconds")
    )
    failovers_s = [each for run in runs for each in run["failovers_s"]]
    return (
        f"| {runs[0]['controllers']} | {runs[0]['kind']} | {crashes} | {of_leaders} | {of_all} | {made:,} "
        f"| {deleted:,} | 0 | {epochs} | {percentile(failovers_s, 50):.2f} | {percentile(failovers_s, 99):.2f} "
        f"| {seconds} |"
    )


if __name__ == "__main__":
    main()
