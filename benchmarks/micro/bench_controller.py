"""A million partitions in one controller: loading them, losing a broker, writing a snapshot.

    python -m benchmarks.micro.bench_controller [--topics 1000] [--partitions 1000] [--brokers 300] [--json] [--record]

The records are in a file, like a snapshot; a fresh process reads and applies them, so that its memory is that of the
image alone. Then a broker stops sending heartbeats, and the controller decides piece by piece until that broker leads
nothing; every piece is encoded, decoded and applied, as through a log. Garbage collections are included: the image is
frozen (`gc.freeze`) once it is loaded, as a server does.
"""

import argparse
import asyncio
import datetime
import gc
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Final

from harness.metadata_world import Dice
from penstock.host.files import HostDisk
from penstock.host.workers import ThreadWorkers
from penstock.metadata.cluster_commands import Heartbeat, Tick
from penstock.metadata.controller import Controller
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.frames import decode_record, encode_record
from penstock.metadata.liveness import WAKE_MS
from penstock.metadata.placement import partition_record, place_all
from penstock.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from penstock.metadata.settings.layers import BrokerSettings
from penstock.metadata.view import ELR_FEATURE, finished
from penstock.raft.ports import SnapshotId
from penstock.raft.replicas import ReplicaKey, Voter, VoterSet
from penstock.server.quorum.metadata_log import snapshot_batches
from penstock.server.quorum.quorum_snapshots import open_shelf, path_of
from penstock.wire.types import ZERO_UUID

REPLICATION_FACTOR: Final = 3
READ_BYTES: Final = 1 << 20
RESULTS: Final = Path(__file__).parents[2] / "docs" / "results"
LIMITS: Final = {
    "load_s": 30.0,
    "memory_mb": 2_048.0,
    "failure_s": 5.0,
    "failure_piece_ms": 50.0,
    "snapshot_stall_ms": 50.0,
}


# --- the records ------------------------------------------------------------------------------------------------------


def cluster(topics: int, partitions: int, brokers: int) -> Iterator[MetadataRecord]:
    """The records of brokers in three racks and of topics spread over them."""
    yield FeatureLevelRecord(name=ELR_FEATURE, feature_level=1)
    feature = BrokerFeature(name=ELR_FEATURE, min_supported_version=0, max_supported_version=1)
    controller = Controller(0, BrokerSettings(), Dice())
    for number in range(brokers):
        record = RegisterBrokerRecord(
            broker_id=number,
            incarnation_id=number.to_bytes(16, "big"),
            broker_epoch=number,
            end_points=(BrokerEndpoint(name="PLAINTEXT", host=f"broker-{number}", port=9092, security_protocol=0),),
            features=(feature,),
            rack="abc"[number % 3],
            fenced=False,
            log_dirs=(b"d" * 12 + number.to_bytes(4, "big"),),
        )
        controller.apply(record)
        yield record
    dice = Dice(1)
    for number in range(topics):
        topic_id = (number + 1_000).to_bytes(16, "big")
        yield TopicRecord(name=f"topic-{number}", topic_id=topic_id)
        placed = finished(place_all(partitions, REPLICATION_FACTOR, controller.image.brokers, dice))
        for index, partition in enumerate(placed):
            yield partition_record(topic_id, index, partition)


def write(path: Path, records: Iterator[MetadataRecord]) -> None:
    with path.open("wb") as file:
        for record in records:
            data = encode_record(record)
            file.write(len(data).to_bytes(4, "big") + data)


def read(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=READ_BYTES) as file:
        while size := file.read(4):
            yield file.read(int.from_bytes(size, "big"))


# --- measuring --------------------------------------------------------------------------------------------------------


class Pauses:
    """Records the longest garbage collection."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self._began = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._began = perf_counter()
        else:
            self.longest_ms = max(self.longest_ms, 1_000 * (perf_counter() - self._began))


def measure(path: Path) -> dict[str, float]:
    base_mb = _peak_mb()
    began = perf_counter()
    gc.disable()
    controller = Controller(0, BrokerSettings({"auto.balance.enable": "false"}), Dice())
    for data in read(path):
        controller.apply(decode_record(data))
    image = controller.image
    image_s = perf_counter() - began
    assert controller.index.image is image
    load_s = perf_counter() - began
    gc.freeze()
    gc.enable()
    found = {
        "partitions": image.partition_count,
        "image_s": image_s,
        "load_s": load_s,
        "memory_mb": _peak_mb(),
        "of_which_python_mb": base_mb,
    }
    pauses = Pauses()
    found |= fail_one_broker(controller)
    with tempfile.TemporaryDirectory() as directory:
        found |= asyncio.run(snapshot(controller, Path(directory)))
    found["collection_ms"] = pauses.longest_ms
    found["memory_at_the_end_mb"] = _peak_mb()
    return found


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fail_one_broker(controller: Controller) -> dict[str, float]:
    """Heartbeats come from all brokers but broker 0, until it is fenced and leads nothing."""
    now = 1_000_000
    controller.begin(now)
    others = [broker for broker in controller.image.brokers.values() if broker.broker_id]
    while not controller.decide(Tick(), now).records:
        now += WAKE_MS
        for broker in others:
            controller.hear(Heartbeat(broker.broker_id, broker.epoch, 1 << 40, 1 << 40), now)
        controller.time_passes(now)
    records = pieces = 0
    longest = 0.0
    began = perf_counter()
    while not controller.image.brokers[0].is_fenced or controller.index.has_trouble:
        piece_began = perf_counter()
        controller.time_passes(now)
        decision = controller.decide(Tick(), now)
        stored = [encode_record(record) for record in decision.records]
        for data in stored:
            controller.apply(decode_record(data))
        assert controller.index.image is controller.image
        records += len(stored)
        pieces += 1
        longest = max(longest, perf_counter() - piece_began)
    failure_s = perf_counter() - began
    assert controller.index.led[0] == 0
    assert not controller.index.leaderless_count
    return {
        "failure_s": failure_s,
        "failure_records": records,
        "failure_pieces": pieces,
        "failure_piece_ms": 1_000 * longest,
    }


class Neighbour:
    """A task on the same loop that is always ready to run, and the longest time that it waited."""

    def __init__(self) -> None:
        self.longest_ms = 0.0

    async def run(self) -> None:
        while True:
            began = perf_counter()
            await asyncio.sleep(0)
            self.longest_ms = max(self.longest_ms, 1_000 * (perf_counter() - began))


async def snapshot(controller: Controller, directory: Path) -> dict[str, float]:
    """Writes a snapshot to a real disk, as a server does."""
    with closing(ThreadWorkers(1)) as workers:
        shelf = await open_shelf(HostDisk(directory, workers))
        snapshot_id = SnapshotId(1, 1)
        neighbour = Neighbour()
        running = asyncio.create_task(neighbour.run())
        began = perf_counter()
        voters = VoterSet([Voter(ReplicaKey(0, ZERO_UUID))])
        await shelf.write(snapshot_id, voters, snapshot_batches(controller.image, 0), 0)
        await shelf.finish(snapshot_id)
        took_s = perf_counter() - began
        running.cancel()
    return {
        "snapshot_s": took_s,
        "snapshot_mb": (directory / path_of(snapshot_id)).stat().st_size / 1e6,
        "snapshot_stall_ms": neighbour.longest_ms,
    }


NAMES: Final = {
    "load_s": "Loading: the image, and the index over it (s)",
    "memory_mb": "Memory of the process then, at most (MB)",
    "failure_s": "One broker fails: until it leads nothing and is in sync nowhere (s)",
    "failure_piece_ms": "The longest piece of that (ms)",
    "snapshot_stall_ms": "Writing a snapshot: the longest that anybody else on the loop waited (ms)",
}


def record(found: dict[str, float], brokers: int) -> None:
    memory_gib = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    rows = [f"| {NAMES[name]} | {found[name]:,.2f} | {limit:,.0f} |" for name, limit in LIMITS.items()]
    text = f"""# A million partitions in one controller

{found["partitions"]:,.0f} partitions with {REPLICATION_FACTOR} replicas on {brokers} brokers. A fresh process reads
their records from a file, decodes and applies them; then one broker falls silent, and the controller decides piece by
piece, each of which is encoded, decoded and applied; then a snapshot is written to a disk as a server does it, beside
another task that always wants the next turn.

| What | Seen | Goal, at most |
|---|--:|--:|
{chr(10).join(rows)}

The failure took {found["failure_records"]:,.0f} records in {found["failure_pieces"]:,.0f} pieces, the snapshot
{found["snapshot_s"]:.1f} s for {found["snapshot_mb"]:.0f} MB; the longest collection of garbage was
{found["collection_ms"]:.1f} ms, and memory was {found["memory_at_the_end_mb"]:,.0f} MB at most in the end.

`python -m benchmarks.micro.bench_controller --record`, {datetime.date.today().isoformat()}, Python
{platform.python_version()}, Linux, {os.cpu_count()} shared cores, {memory_gib} GiB.
"""
    (RESULTS / "controller-scale.md").write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--brokers", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--record", action="store_true", help="write docs/results/controller-scale.md")
    parser.add_argument("--load", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.load is not None:
        print(json.dumps(measure(arguments.load)))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "snapshot"
        write(path, cluster(arguments.topics, arguments.partitions, arguments.brokers))
        command = [sys.executable, "-m", "benchmarks.micro.bench_controller", "--load", str(path)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    if arguments.record:
        record(found, arguments.brokers)
    if arguments.json:
        print(json.dumps(found))
    else:
        for name, figure in found.items():
            limit = f"  limit {LIMITS[name]:,.0f}" if name in LIMITS else ""
            verdict = "" if name not in LIMITS else ("  ok" if figure <= LIMITS[name] else "  MISSED")
            print(f"{name:<24} {figure:>14,.2f}{limit}{verdict}")
    return int(any(found[name] > limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
