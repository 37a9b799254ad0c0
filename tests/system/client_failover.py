"""How long a client waits after the leader of its partition was killed: Penstock, and Apache Kafka beside it.

    python -m tests.system.client_failover --kills 50 --clusters penstock,kafka --record
    python -m tests.system.client_failover --kills 8 --clusters kafka --record        a piece more of one of them

Three nodes, each broker and controller and a process of its own, with their defaults; one partition with three
replicas, two of which must be in sync. A librdkafka producer (idempotent, acks=all) sends a record every 10 ms, a
consumer follows. The leader is killed (SIGKILL); the clock stops when a record that was sent after the kill is
acknowledged, and for the consumer when it is read. Then the node is restarted, and the next kill comes when all
replicas are in sync and all controllers have caught up. Each kill has new clients, because librdkafka remembers for ten
seconds that a node was unreachable. Every third killed leader is also the active controller. No record may be lost,
duplicated or out of order. `--record` adds the kills to docs/results/client-failover.md; `--plant` gives Penstock's
nodes a bug.
"""

import argparse
import asyncio
import datetime
import json
import math
import platform
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

import confluent_kafka
from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient

from harness.load import create_topics
from harness.ports import free_port
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.metadata import TopicPartition
from tests.revision import revision
from tests.system.cluster_faults import NODES, WHOLE_S, Town
from tests.system.controller_failover import KafkaProcess, Killable
from tests.system.density import say
from tests.system.mortal_node import Broken
from tests.system.plants import PLANTS
from tests.system.quorum_kills import FAILOVER_S, READY_S, RESULTS, percentile, until_all_vote

TOPIC: Final = "orders"
PACE_S: Final = 0.01
STEADY: Final = 50
"""Records that must be acknowledged and read before a kill."""
LIMIT_S: Final = 60.0
"""The longest allowed wait for an acknowledgement."""
P50_S_MAX: Final = 1.0
P99_S_MAX: Final = 3.0
"""Goals of the fail-over times."""
CLUSTERS: Final = {"penstock": "Penstock", "kafka": "Apache Kafka 4.3"}
HEAD: Final = (
    "| | Kills | Of the active controller, too | Acknowledged again, p50 s | p90 s | p99 s | Longest s "
    "| Read again, p50 s | p99 s | Longest s |"
)


class Kill(NamedTuple):
    """What the clients measured for one kill, in seconds from it."""

    acked_s: float
    read_s: float
    was_controller: bool


# --- clusters ---------------------------------------------------------------------------------------------------------


class Trio(Protocol):
    """Three nodes."""

    bootstrap: str

    @property
    def nodes(self) -> Mapping[int, Killable]: ...


class KafkaTown:
    """Three nodes of Apache Kafka, each a broker and a controller."""

    def __init__(self, directory: Path) -> None:
        ports = {each: (free_port(), free_port()) for each in NODES}
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port, _ in ports.values())
        self.nodes = {
            each: KafkaProcess(
                directory,
                each,
                {
                    "process.roles": "broker,controller",
                    "listeners": f"BROKER://127.0.0.1:{ports[each][0]},CONTROLLER://127.0.0.1:{ports[each][1]}",
                    "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
                    "inter.broker.listener.name": "BROKER",
                    "controller.listener.names": "CONTROLLER",
                    "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{port}" for n, (_, port) in ports.items()),
                },
            )
            for each in NODES
        }

    def __enter__(self) -> Self:
        for each in self.nodes.values():
            each.format()
        for each in self.nodes.values():
            each.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for each in self.nodes.values():
            each.stop()


# --- clients ----------------------------------------------------------------------------------------------------------


class Sender(threading.Thread):
    """Sends to one partition at a fixed pace; records that could not be sent in time are skipped."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="sender", daemon=True)
        self.sent_s: list[float] = []
        """When each record was passed to the producer, by its number."""
        self.acked: list[tuple[float, float]] = []
        """Of each acknowledged record: when it was sent, and when it was acknowledged."""
        self.problems: list[str] = []
        self._stopping = threading.Event()
        self._producer: Any = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all", "log_level": 0}
        )

    def run(self) -> None:
        due_s = time.monotonic()
        while not self._stopping.is_set():
            now_s = time.monotonic()
            if now_s >= due_s:
                self._send(now_s)
                due_s = max(due_s + PACE_S, now_s)
            self._producer.poll(max(0.0, due_s - time.monotonic()))

    def _send(self, now_s: float) -> None:
        number = len(self.sent_s)
        self.sent_s.append(now_s)

        def on_delivery(error: Any, _message: Any) -> None:
            if error is not None:
                self.problems.append(f"record {number} was given up: {error}")
            else:
                self.acked.append((now_s, time.monotonic()))

        self._producer.produce(TOPIC, str(number), partition=0, on_delivery=on_delivery)

    def stop(self) -> None:
        """Stops sending."""
        self._stopping.set()
        self.join()

    def finish(self) -> None:
        """Stops sending, and waits for the records in flight."""
        self.stop()
        if left := self._producer.flush(LIMIT_S):
            self.problems.append(f"{left} records were never answered")


class Reader(threading.Thread):
    """Follows the partition from the offset at which its sender begins."""

    def __init__(self, bootstrap: str, sender: Sender, offset: int) -> None:
        super().__init__(name="reader", daemon=True)
        self.read: list[tuple[float, float]] = []
        """Of each record read: when it was sent, and when it was read."""
        self.problems: list[str] = []
        self._sender = sender
        self._stopping = threading.Event()
        self._consumer: Any = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
        )
        self._consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, offset)])

    def run(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is not None:
                if not message.error().retriable():
                    self.problems.append(f"the reader met {message.error()}")
                continue
            number = int(message.value())
            if number != len(self.read):
                self.problems.append(f"record {number} was read where {len(self.read)} was due")
            self.read.append((self._sender.sent_s[number], time.monotonic()))

    def stop(self) -> None:
        """Stops reading."""
        self._stopping.set()
        self.join()
        self._consumer.close()

    def finish(self) -> None:
        """Reads everything that was sent, then stops."""
        deadline_s = time.monotonic() + LIMIT_S
        while len(self.read) < len(self._sender.sent_s) and not self.problems and time.monotonic() < deadline_s:
            time.sleep(0.02)
        if len(self.read) < len(self._sender.sent_s):
            self.problems.append(f"of {len(self._sender.sent_s)} records {len(self.read)} were read")
        self.stop()


@contextmanager
def clients(bootstrap: str, offset: int) -> Iterator[tuple[Sender, Reader]]:
    """A running sender and reader. At the end every record must have been acknowledged and read, once and in order."""
    sender = Sender(bootstrap)
    reader = Reader(bootstrap, sender, offset)
    sender.start()
    reader.start()
    try:
        yield sender, reader
    except BaseException:
        sender.stop()
        reader.stop()
        raise
    sender.finish()
    reader.finish()
    if problems := [*sender.problems, *reader.problems]:
        raise Broken("; ".join(problems[:5]))


# --- kills ------------------------------------------------------------------------------------------------------------


async def measure(
    trio: Trio,
    count: int,
    *,
    limit_s: float = LIMIT_S,
    seconds_max: float = math.inf,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Kill]:
    """Kills the leader up to `count` times within `seconds_max`."""
    began_s = time.monotonic()
    async with Cluster(trio.bootstrap, request_timeout_ms=2_000, timeout_ms=int(READY_S * 1000)) as cluster:
        admin = Admin(cluster)
        await until_all_serve(admin)
        create_topics(trio.bootstrap, [(TOPIC, 1)], replication_factor=len(NODES), min_insync_replicas="2")
        kills: list[Kill] = []
        offset = 0
        while len(kills) < count and time.monotonic() < began_s + seconds_max:
            leader, was_controller = await _next_victim(admin, trio.bootstrap, len(kills))
            with clients(trio.bootstrap, offset) as (sender, reader):
                await _until_steady(sender, reader)
                killed_s = time.monotonic()
                trio.nodes[leader].end(signal.SIGKILL)
                acked_s = await _first(sender.acked, killed_s, limit_s, "acknowledged")
                read_s = await _first(reader.read, killed_s, limit_s, "read")
            offset += len(sender.sent_s)
            kills.append(Kill(acked_s, read_s, was_controller))
            trio.nodes[leader].start()
            who = f"node {leader}{', the active controller, too' if was_controller else ''}"
            tell(f"kill {len(kills)} of {count}, {who}: acknowledged after {acked_s:.2f} s, read after {read_s:.2f} s")
        await until_whole(admin, TOPIC)
    return kills


async def _next_victim(admin: Admin, bootstrap: str, number: int) -> tuple[int, bool]:
    """Waits until the cluster is whole; returns the leader, and whether it is the active controller (every third)."""
    wants_controller = number % 3 == 1
    while True:
        (leader,) = (await until_whole(admin, TOPIC)).values()
        controller = (await until_all_vote(admin, len(NODES))).leader_id
        if (leader == controller) == wants_controller:
            return leader, wants_controller
        wanted = controller if wants_controller else next(each for each in NODES if each != controller)
        await _hand_over(admin, bootstrap, wanted)


async def _hand_over(admin: Admin, bootstrap: str, leader: int) -> None:
    """Makes a node the preferred leader, and has it elected."""
    replicas = [leader, *(each for each in NODES if each != leader)]
    for refused in (await admin.alter_reassignments({TopicPartition(TOPIC, 0): replicas})).values():
        if refused is not None:
            raise refused
    elector: Any = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    place = confluent_kafka.TopicPartition(TOPIC, 0)
    await asyncio.to_thread(lambda: elector.elect_leaders(ElectionType.PREFERRED, [place]).result(FAILOVER_S))


async def _first(seen: Sequence[tuple[float, float]], killed_s: float, limit_s: float, what: str) -> float:
    """Seconds from the kill until a record sent after it was seen."""
    looked_at = 0
    while True:
        for sent_s, seen_s in seen[looked_at:]:
            looked_at += 1
            if sent_s > killed_s:
                return seen_s - killed_s
        if time.monotonic() > killed_s + limit_s:
            raise Broken(f"nothing that was sent after the kill was {what} in {limit_s:.0f} s")
        await asyncio.sleep(PACE_S)


async def until_all_serve(admin: Admin) -> None:
    deadline_s = time.monotonic() + READY_S
    while time.monotonic() < deadline_s:
        try:
            if len((await admin.describe_cluster()).brokers) == len(NODES):
                return
        except ClientError:
            pass
        await asyncio.sleep(0.1)
    raise Broken(f"not all nodes serve after {READY_S:.0f} s")


async def until_whole(admin: Admin, topic: str) -> dict[int, int]:
    """Waits until all replicas of a topic are in sync; returns the leader of each partition."""
    deadline_s, seen = time.monotonic() + WHOLE_S, "nobody answers"
    while time.monotonic() < deadline_s:
        try:
            parts = (await admin.describe_topic(topic, timeout_ms=int(FAILOVER_S * 1000))).partitions
        except ClientError as error:
            seen = str(error)
        else:
            if all(len(each.isr) == len(NODES) and each.leader in NODES for each in parts):
                return {each.index: each.leader for each in parts}
            seen = "; ".join(f"led by {each.leader}, in sync {sorted(each.isr)}" for each in parts)
        await asyncio.sleep(0.1)
    raise Broken(f"not whole again after {WHOLE_S:.0f} s: {seen}")


async def _until_steady(sender: Sender, reader: Reader) -> None:
    """Waits until records are acknowledged and read as fast as they are sent."""
    deadline_s = time.monotonic() + WHOLE_S
    while min(len(sender.acked), len(reader.read)) < max(STEADY, len(sender.sent_s) - STEADY // 2):
        if sender.problems or reader.problems or time.monotonic() > deadline_s:
            raise Broken("; ".join([*sender.problems, *reader.problems]) or "the clients never caught up")
        await asyncio.sleep(PACE_S)


def run(
    directory: Path,
    cluster: str,
    kills: int,
    *,
    limit_s: float = LIMIT_S,
    seconds_max: float = math.inf,
    plant: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Kill]:
    """Creates a cluster and kills its leaders."""
    made = KafkaTown(directory) if cluster == "kafka" else Town(directory, plant=plant)
    with made as trio:
        return asyncio.run(measure(trio, kills, limit_s=limit_s, seconds_max=seconds_max, tell=tell))


# --- results ----------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="of each cluster's leader (a minute for 12, Kafka: 3)")
    parser.add_argument("--clusters", default="penstock,kafka", help="which, by commas: penstock, kafka")
    parser.add_argument("--seconds", type=float, default=math.inf, help="then no further kill of this cluster follows")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="a bug of Penstock's nodes; nothing is recorded")
    parser.add_argument("--keep", type=Path, help="an empty directory for data and logs, which are kept")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # no node is left running
    wanted = options.clusters.split(",")
    if unknown := set(wanted) - set(CLUSTERS):
        parser.error(f"--clusters knows {', '.join(CLUSTERS)}, not {', '.join(sorted(unknown))}")
    is_good = True
    for cluster in wanted:
        with tempfile.TemporaryDirectory(prefix="penstock-client-failover-") as temporary:
            directory = options.keep or Path(temporary)
            kills = run(directory, cluster, options.kills, seconds_max=options.seconds, plant=options.plant, tell=say)
        print(f"{HEAD}\n{row(CLUSTERS[cluster], kills)}", flush=True)
        if options.record and options.plant is None:
            write([*load(), _piece(cluster, kills)])
        if cluster == "penstock":
            acked_s = [each.acked_s for each in kills]
            is_good = percentile(acked_s, 50) <= P50_S_MAX and percentile(acked_s, 99) <= P99_S_MAX
    return 0 if is_good else 1


def _piece(cluster: str, kills: Sequence[Kill]) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "kills": [[round(each.acked_s, 3), round(each.read_s, 3), each.was_controller] for each in kills],
        "date": datetime.date.today().isoformat(),
        "revision": revision(),
    }


def load() -> list[dict[str, Any]]:
    path = RESULTS / "client-failover.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def row(name: str, kills: Sequence[Kill]) -> str:
    acked_s = [each.acked_s for each in kills]
    read_s = [each.read_s for each in kills]
    cells = [
        str(len(kills)),
        str(sum(each.was_controller for each in kills)),
        *(f"{percentile(acked_s, each):.2f}" for each in (50, 90, 99, 100)),
        *(f"{percentile(read_s, each):.2f}" for each in (50, 99, 100)),
    ]
    return f"| {name} | {' | '.join(cells)} |"


def _shown(piece: Mapping[str, Any]) -> tuple[str, list[Kill]]:
    return CLUSTERS[piece["cluster"]], [Kill(*each) for each in piece["kills"]]


def write(pieces: Sequence[Mapping[str, Any]]) -> None:
    lines = ",\n".join(f" {json.dumps(each)}" for each in pieces)
    (RESULTS / "client-failover.json").write_text(f"[\n{lines}\n]\n")
    together: dict[str, list[Kill]] = {name: [] for name in CLUSTERS.values()}
    for name, kills in map(_shown, pieces):
        together[name] += kills
    rows = [row(name, kills) for name, kills in together.items() if kills]
    in_pieces = [f"{row(*_shown(each))} {each['date']} | {each['revision']} |" for each in pieces]
    text = f"""# Fail-over, as clients see it

Three nodes, each broker and controller and a process of its own, on one machine of two shared cores; one partition with
three replicas, min.insync.replicas=2. A librdkafka producer (idempotent, acks=all) sends a record every
{1000 * PACE_S:.0f} ms and a librdkafka consumer follows, both otherwise with their defaults. The leader is killed
(SIGKILL). *Acknowledged again* is the time from there until a record that was sent after the kill is acknowledged,
*read again* until one is read. Then the node is started again; the next kill comes when all replicas are in sync and
all controllers have caught up. Other clients meet it: librdkafka waits longer and longer before it connects to a node
that it has met dead, and forgets that only after ten seconds. Every third leader that is killed is the active
controller, too. Everything that was sent was acknowledged and read, once and in order. The same script, clients and
machine for both clusters; both with their defaults. Asked of Penstock: p50 at most {P50_S_MAX:.0f} s, p99 at most
{P99_S_MAX:.0f} s.

{HEAD}
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|
{chr(10).join(rows)}

Where they differ: the active controller of Penstock looks for a broker as soon as the connection of its heartbeats
ends, and believes a machine that says that nobody listens there ([the metadata quorum](../quorum.md)); Kafka's waits
until the session is over, 9 s by default. A machine that is gone as a whole, and says nothing, costs a session in
Penstock, too: 3 s by default. And a client that asks a broker of Penstock for the leader, because its connection to the
last one has just ended, is answered when the next one is known; else librdkafka would ask again up to a second later.

Piece by piece:

{HEAD} Date | Revision |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|---|
{chr(10).join(in_pieces)}

`python -m tests.system.client_failover --kills 50 --clusters penstock,kafka --record` adds to these tables; Python
{platform.python_version()}, librdkafka {confluent_kafka.libversion()[0]}. The same with a bug in the nodes must fail:
`--clusters penstock --plant fence-late`.
"""
    (RESULTS / "client-failover.md").write_text(text)


if __name__ == "__main__":
    raise SystemExit(main())
