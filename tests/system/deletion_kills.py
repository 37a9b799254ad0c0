"""DeleteRecords on three nodes whose leaders are killed right after the acknowledgement.

    python -m tests.system.deletion_kills --kills 100 --record
    python -m tests.system.deletion_kills --kills 100 --seconds 500 --record      a piece of a longer campaign

Three nodes, each broker and controller and a process of its own; three partitions with three replicas, two of which
must be in sync. A librdkafka producer (acks=all) writes to them. A librdkafka admin client deletes records before a
random offset in all partitions that one node leads, and that node is killed (SIGKILL) as soon as all deletions are
acknowledged. In every third round a follower is killed before the deletion and restarted after it; the leader is killed
when the follower is in the ISR again. After each kill the new leaders report the start offsets of the partitions, and
again when all replicas are in sync. No partition may start before an offset that was acknowledged as its low watermark.
`--record` adds the kills to docs/results/deletion-kills.md; `--plant` gives the nodes a bug.
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
from random import Random
from typing import Any, Final, NamedTuple

import confluent_kafka
from confluent_kafka.admin import AdminClient

from harness.load import OFFSET_SPEC, create_topics, list_offsets
from harness.ports import free_port
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from tests.revision import revision
from tests.system.client_failover import until_all_serve, until_whole
from tests.system.cluster_faults import NODES, Town
from tests.system.density import say
from tests.system.mortal_node import Broken
from tests.system.plants import PLANTS
from tests.system.quorum_kills import FAILOVER_S, READY_S, RESULTS, percentile

TOPIC: Final = "purged"
PARTITIONS: Final = 3
SEGMENT_BYTES: Final = "1048576"
PACE_S: Final = 0.002
NEW_RECORDS: Final = 100
"""Records that each partition gets between two kills."""
DELETE_S: Final = 30.0
HEAD: Final = (
    "| Kills | With a follower that was down | Partitions deleted from | Records deleted | Deleted, p50 ms | p99 ms "
    "| Longest ms | Low watermarks that went back |"
)


class Kill(NamedTuple):
    """A killed leader, and the deletions that it had acknowledged before."""

    partitions: int
    records: int
    deleted_s: float
    """From the request to the acknowledgement of its last partition."""
    had_follower_down: bool


class Writer(threading.Thread):
    """Writes to all partitions in turn."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="writer", daemon=True)
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        """The offset after the last acknowledged record, by partition."""
        self._stopping = threading.Event()
        self._producer: Any = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            self._producer.produce(TOPIC, b"%0100d" % number, partition=number % PARTITIONS, on_delivery=self._note)
            self._producer.poll(PACE_S)

    def _note(self, error: Any, message: Any) -> None:
        if error is None:
            self.ends[message.partition()] = max(self.ends[message.partition()], message.offset() + 1)

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        self._producer.flush(FAILOVER_S)


@contextmanager
def writing(bootstrap: str) -> Iterator[Writer]:
    writer = Writer(bootstrap)
    writer.start()
    try:
        yield writer
    finally:
        writer.stop()


class Campaign:
    """Kills one leader after another, and keeps the low watermarks acknowledged so far."""

    def __init__(self, town: Town, admin: Admin, writer: Writer, random: Random) -> None:
        self._town = town
        self._admin = admin
        self._writer = writer
        self._random = random
        self._low_watermarks = dict.fromkeys(range(PARTITIONS), 0)
        self._client = self._a_client()

    def _a_client(self) -> Any:
        """A new client that has not met dead nodes yet: librdkafka avoids those for ten seconds."""
        return AdminClient({"bootstrap.servers": self._town.bootstrap, "log_level": 0})

    async def kill(self, number: int) -> Kill:
        """Runs one round, which ends with all replicas in sync."""
        leaders = await until_whole(self._admin, TOPIC)
        self._client = self._a_client()
        await self._until_written()
        counts = {node_id: list(leaders.values()).count(node_id) for node_id in NODES}
        leader = max(self._random.sample(NODES, len(NODES)), key=lambda each: counts[each])
        led = [index for index, each in leaders.items() if each == leader]
        had_follower_down = number % 3 == 2
        follower = self._random.choice([each for each in NODES if each != leader])
        if had_follower_down:
            self._town.nodes[follower].end(signal.SIGKILL)
        before = dict(self._low_watermarks)
        deleted_s = await asyncio.to_thread(self._delete, led)
        if had_follower_down:
            self._town.nodes[follower].start()
            await until_whole(self._admin, TOPIC)
        self._town.nodes[leader].end(signal.SIGKILL)
        await self._check(led, "after the leader was killed")
        self._town.nodes[leader].start()
        await until_whole(self._admin, TOPIC)
        await self._check(range(PARTITIONS), "when all replicas were in sync again")
        records = sum(self._low_watermarks[index] - before[index] for index in led)
        return Kill(len(led), records, deleted_s, had_follower_down)

    async def _until_written(self) -> None:
        wanted = {index: end + NEW_RECORDS for index, end in self._writer.ends.items()}
        deadline_s = time.monotonic() + FAILOVER_S
        while any(self._writer.ends[index] < end for index, end in wanted.items()):
            if time.monotonic() > deadline_s:
                raise Broken(f"only {self._writer.ends} were written, and not {wanted}")
            await asyncio.sleep(PACE_S)

    def _delete(self, indexes: Sequence[int]) -> float:
        """Deletes records of partitions in one request; returns the seconds until all were acknowledged."""
        ends = dict(self._writer.ends)
        places = [
            confluent_kafka.TopicPartition(
                TOPIC, index, self._random.randint(min(self._low_watermarks[index] + 1, ends[index]), ends[index])
            )
            for index in indexes
        ]
        began_s = time.monotonic()
        answers = self._client.delete_records(places, operation_timeout=DELETE_S, request_timeout=DELETE_S)
        for place, answer in answers.items():
            low_watermark = answer.result(DELETE_S).low_watermark
            if low_watermark < place.offset:
                raise Broken(f"{place.partition} was to start at {place.offset}, and {low_watermark} was acknowledged")
            self._low_watermarks[place.partition] = max(low_watermark, self._low_watermarks[place.partition])
        return time.monotonic() - began_s

    async def _check(self, indexes: Sequence[int], when: str) -> None:
        """Checks the start offsets that the partitions' leaders report against the acknowledged low watermarks."""
        asker = self._a_client()
        left = {(TOPIC, index) for index in indexes}
        deadline_s = time.monotonic() + FAILOVER_S
        while left:
            said = await asyncio.to_thread(list_offsets, asker, left, OFFSET_SPEC.earliest(), FAILOVER_S)
            for (topic, index), start in said.items():
                if not isinstance(start, int):
                    continue
                left.discard((topic, index))
                if start < self._low_watermarks[index]:
                    acknowledged = self._low_watermarks[index]
                    raise Broken(f"partition {index} starts at {start} {when}, but {acknowledged} was acknowledged")
            if left and time.monotonic() > deadline_s:
                raise Broken(f"nobody says where partitions start {when}: {said}")
            await asyncio.sleep(0.05)


async def measure(
    town: Town,
    count: int,
    *,
    seed: int,
    seconds_max: float = math.inf,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Kill]:
    """Kills leaders up to `count` times within `seconds_max`."""
    began_s = time.monotonic()
    kills: list[Kill] = []
    async with Cluster(town.bootstrap, request_timeout_ms=2_000, timeout_ms=int(READY_S * 1000)) as cluster:
        admin = Admin(cluster)
        await until_all_serve(admin)
        create_topics(
            town.bootstrap,
            [(TOPIC, PARTITIONS)],
            replication_factor=len(NODES),
            min_insync_replicas="2",
            segment_bytes=SEGMENT_BYTES,
        )
        with writing(town.bootstrap) as writer:
            campaign = Campaign(town, admin, writer, Random(seed))
            while len(kills) < count and time.monotonic() < began_s + seconds_max:
                kills.append(await campaign.kill(len(kills)))
                last = kills[-1]
                what = f"{last.records} records of {last.partitions} partitions in {1000 * last.deleted_s:.0f} ms"
                tell(f"kill {len(kills)} of {count}: deleted {what}")
    return kills


def run(
    directory: Path,
    kills: int,
    *,
    seed: int = 1,
    seconds_max: float = math.inf,
    plant: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Kill]:
    """Creates a cluster and kills its leaders."""
    with Town(directory, plant=plant) as town:
        return asyncio.run(measure(town, kills, seed=seed, seconds_max=seconds_max, tell=tell))


# --- results ----------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="of leaders (a minute for 10)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="then no further kill follows")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="a bug of the nodes; nothing is recorded")
    parser.add_argument("--keep", type=Path, help="an empty directory for data and logs, which are kept")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # no node is left running
    with tempfile.TemporaryDirectory(prefix="penstock-deletion-kills-") as temporary:
        directory = options.keep or Path(temporary)
        seed = free_port()
        kills = run(directory, options.kills, seed=seed, seconds_max=options.seconds, plant=options.plant, tell=say)
    print(f"{HEAD}\n{row(kills)}", flush=True)
    if options.record and options.plant is None:
        write([*load(), _piece(kills)])
    return 0


def _piece(kills: Sequence[Kill]) -> dict[str, Any]:
    return {
        "kills": [[each.partitions, each.records, round(each.deleted_s, 3), each.had_follower_down] for each in kills],
        "date": datetime.date.today().isoformat(),
        "revision": revision(),
    }


def load() -> list[dict[str, Any]]:
    path = RESULTS / "deletion-kills.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def row(kills: Sequence[Kill]) -> str:
    """A line of the table. A low watermark that went back would have ended the campaign."""
    deleted_ms = [1000 * each.deleted_s for each in kills if not each.had_follower_down]
    cells = [
        str(len(kills)),
        str(sum(each.had_follower_down for each in kills)),
        str(sum(each.partitions for each in kills)),
        f"{sum(each.records for each in kills):,}",
        *(f"{percentile(deleted_ms, each):.0f}" for each in (50, 99, 100)),
        "0",
    ]
    return f"| {' | '.join(cells)} |"


def _shown(piece: Mapping[str, Any]) -> list[Kill]:
    return [Kill(*each) for each in piece["kills"]]


def write(pieces: Sequence[Mapping[str, Any]]) -> None:
    lines = ",\n".join(f" {json.dumps(each)}" for each in pieces)
    (RESULTS / "deletion-kills.json").write_text(f"[\n{lines}\n]\n")
    together = [kill for piece in pieces for kill in _shown(piece)]
    in_pieces = [f"{row(_shown(each))} {each['date']} | {each['revision']} |" for each in pieces]
    text = f"""# DeleteRecords under kills of leaders

Three nodes, each broker and controller and a process of its own, on one machine of two shared cores; {PARTITIONS}
partitions with three replicas, min.insync.replicas=2, durability=fsync. A librdkafka producer (acks=all) writes to
them. A librdkafka admin client deletes records before a random offset of all partitions that one node leads, in one
request; that node is killed (SIGKILL) as soon as all partitions are acknowledged. In every third round a follower is
killed before the deletion and started after it, and the leader is killed when the follower is in the ISR again. The new
leaders report where the partitions start (ListOffsets), and again when all replicas are in sync. A partition that
starts before an offset that was acknowledged as its low watermark, in this round or an earlier one, ends the campaign
as failed. *Deleted* is the time from the request to the last acknowledgement while all nodes are up.

{HEAD}
|--:|--:|--:|--:|--:|--:|--:|--:|
{row(together)}

Piece by piece:

{HEAD} Date | Revision |
|--:|--:|--:|--:|--:|--:|--:|--:|---|---|
{chr(10).join(in_pieces)}

`python -m tests.system.deletion_kills --kills 100 --record` adds to these tables; Python {platform.python_version()},
librdkafka {confluent_kafka.libversion()[0]}. The same with a bug in the nodes must fail: `--plant delete-alone`.
"""
    (RESULTS / "deletion-kills.md").write_text(text)


if __name__ == "__main__":
    raise SystemExit(main())
