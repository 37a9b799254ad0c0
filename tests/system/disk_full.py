"""A broker whose disk of 64 MB is filled up and freed, again and again.

    python -m tests.system.disk_full --fills 20 --record

Each time: producers get KAFKA_STORAGE_ERROR, readers read everything that was acknowledged, metadata requests are
answered, a restart succeeds; then space is freed in one of five ways, and producing resumes by itself.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from harness.load import ASK_S, CALM, Asker, Diary, Follower, create_topics, ends_of
from penstock.verify.check import check
from penstock.verify.history import merge_histories
from penstock.verify.report import Report
from tests.revision import revision
from tests.system.small_disk import FILES_MAX, KINDS, a_small_disk
from tests.system.victim import ComposedVictim, Victim

RESULTS = Path(__file__).parents[2] / "docs" / "results"
KEPT = "kept"
OUT_OF_FILES = "remove others' files, of which there were too many"
KEPT_PARTITIONS = 2
FILL_PARTITIONS = 3
SEGMENT_BYTES = 1_000_000
RECORD_BYTES = 60_000
BALLAST_BYTES = 24_000_000
"""Occupies space all the time, so that less has to be produced."""
LATE_BALLAST_BYTES = 6_000_000
REFUSALS_WANTED = 5
FILL_S = 60.0
RECOVERY_S = 20.0
READ_S = 60.0
STORAGE_ERROR = confluent_kafka.KafkaError.KAFKA_STORAGE_ERROR
SETTINGS = {
    "log.retention.check.interval.ms": "1000",
    "auto.create.topics.enable": "false",  # else a producer with outdated metadata recreates a deleted topic
}


class Fills:
    """One broker on one small disk."""

    def __init__(self, disk: Path, victim: Victim, seed: int) -> None:
        self.recovery_s: list[float] = []
        self.refusals = self.acked = self.restarts = 0
        self.problems: list[str] = []
        self._disk = disk
        self._victim = victim
        self._random = Random(seed)
        self._sent = 0
        self._diary = Diary()
        self._values: dict[tuple[str, int], set[str]] = {}
        (disk / "ballast").write_bytes(bytes(BALLAST_BYTES))
        victim.start()
        victim.wait_ready()
        common = {**CALM, "bootstrap.servers": victim.address, "acks": "all"}
        create_topics(victim.address, [(KEPT, KEPT_PARTITIONS)], internal_segment_bytes=str(SEGMENT_BYTES))
        self._admin = AdminClient(common)
        # One producer fails at once and reports why, one keeps retrying.
        self._frank: Any = confluent_kafka.Producer({**common, "message.send.max.retries": 0, "linger.ms": 1})
        self._steady: Any = confluent_kafka.Producer(
            {**common, "enable.idempotence": True, "message.timeout.ms": 300_000, "linger.ms": 1}
        )
        kept = [(KEPT, index) for index in range(KEPT_PARTITIONS)]
        self._follower = Follower("follower", victim.address, kept)
        self._asker = Asker("asks", victim.address, kept)
        self._follower.start()
        self._asker.start()
        self.ways: dict[str, Callable[[str], None]] = {
            "delete the topic": self._delete_topic,
            "delete its records": self._delete_records,
            "let retention delete": self._let_retention_delete,
            "remove another's file": self._remove_ballast,
            OUT_OF_FILES: self._remove_small_files,
        }

    def fill(self, number: int) -> None:
        """One round: fill the disk, check, free space, check that producing resumes."""
        way = list(self.ways)[number % len(self.ways)]
        topic = f"fill-{number}"
        create_topics(self._victim.address, [(topic, FILL_PARTITIONS)], internal_segment_bytes=str(SEGMENT_BYTES))
        if way == OUT_OF_FILES:
            self._use_up_files()
        else:
            (self._disk / "late-ballast").write_bytes(bytes(LATE_BALLAST_BYTES))
        self._fill_up(topic)
        self._look(topic)
        if number % 3 == 1:
            self._restart(signal.SIGTERM if number % 2 else signal.SIGKILL)
            self._look(topic)
        for _ in range(20):
            self._send(self._steady, "steady", KEPT, 10_000)
        self._steady.poll(0)
        began = time.monotonic()
        self.ways[way](topic)
        self._await_recovery(way)
        self.recovery_s.append(time.monotonic() - began)
        left = self._steady.flush(RECOVERY_S)
        if left:
            self.problems.append(f"after '{way}' {left} records of the idempotent producer are still unanswered")
        (self._disk / "late-ballast").unlink(missing_ok=True)
        if way != "delete the topic":
            self._delete_topic(topic)

    def finish(self) -> Report:
        """Checks that every acknowledged record of the kept topic is there, once."""
        self._follower.finish(time.monotonic() + READ_S)
        self._asker.leave()
        self.problems += self._follower.problems + self._asker.problems + self._victim.damages
        return check(merge_histories(self._diary.events, self._follower.diary.events, self._asker.diary.events))

    # --- while it is full -----------------------------------------------------------------------------------------

    def _fill_up(self, topic: str) -> None:
        wanted, deadline = self.refusals + REFUSALS_WANTED, time.monotonic() + FILL_S
        while self.refusals < wanted:
            if time.monotonic() > deadline:
                raise AssertionError(f"the disk did not fill up in {FILL_S} s: {self.problems}")
            for _ in range(20):
                self._send(self._frank, "frank", topic, RECORD_BYTES)
            self._frank.flush(FILL_S)
        while self._try_kept(RECORD_BYTES):
            pass  # until the kept topic has no space left either

    def _use_up_files(self) -> None:
        """Leaves space for bytes, but not for a new file."""
        crowd = self._disk / "crowd"
        crowd.mkdir()
        for number in range(FILES_MAX + 1):
            try:
                (crowd / str(number)).touch()
            except OSError:
                return
        raise AssertionError("there is no end of files")

    def _look(self, topic: str) -> None:
        """Checks that metadata requests are answered and readers are served."""
        found = self._admin.list_topics(timeout=ASK_S).topics
        if not {KEPT, topic} <= set(found):
            self.problems.append(f"metadata of a full node: {sorted(found)}")
        for place, values in self._values.items():
            if place[0] == topic:
                missing = values - self._read(*place)
                if missing:
                    self.problems.append(f"{place}: {len(missing)} acknowledged records cannot be read")

    def _read(self, topic: str, index: int) -> set[str]:
        consumer: Any = confluent_kafka.Consumer(
            {**CALM, "bootstrap.servers": self._victim.address, "group.id": "unused", "enable.auto.commit": False}
        )
        found = set()
        try:
            end = ends_of(self._victim.address, [(topic, index)], time.monotonic())[topic, index]
            consumer.assign([confluent_kafka.TopicPartition(topic, index, 0)])
            position, deadline = 0, time.monotonic() + READ_S
            while position < end and time.monotonic() < deadline:
                for message in consumer.consume(500, 0.1):
                    if message.error() is None:
                        found.add(message.value().partition(b" ")[0].decode())
                        position = message.offset() + 1
        finally:
            consumer.close()
        return found

    def _restart(self, number: signal.Signals) -> None:
        self._victim.end(number)
        self._victim.start()
        self._victim.wait_ready()
        self.restarts += 1

    # --- freeing space --------------------------------------------------------------------------------------------

    def _delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic], operation_timeout=ASK_S)[topic].result(ASK_S)

    def _delete_records(self, topic: str) -> None:
        places = [confluent_kafka.TopicPartition(topic, index, -1) for index in range(FILL_PARTITIONS)]
        for deleted in self._admin.delete_records(places, request_timeout=ASK_S).values():
            deleted.result(ASK_S)

    def _let_retention_delete(self, topic: str) -> None:
        entry = ConfigEntry("retention.bytes", "1", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        for altered in self._admin.incremental_alter_configs([resource]).values():
            altered.result(ASK_S)

    def _remove_ballast(self, _topic: str) -> None:
        (self._disk / "late-ballast").unlink()

    def _remove_small_files(self, _topic: str) -> None:
        shutil.rmtree(self._disk / "crowd")

    def _await_recovery(self, way: str) -> None:
        deadline = time.monotonic() + RECOVERY_S
        while not self._try_kept(RECORD_BYTES):
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"{RECOVERY_S} s after '{way}' nothing can be produced: {self._victim.log[-2000:]}"
                )
            time.sleep(0.05)

    # --- producing ------------------------------------------------------------------------------------------------

    def _try_kept(self, size_bytes: int) -> bool:
        """Whether one record is accepted by every partition of the kept topic."""
        acked = self.acked
        for index in range(KEPT_PARTITIONS):
            self._send(self._frank, "frank", KEPT, size_bytes, index)
        self._frank.flush(FILL_S)
        return self.acked == acked + KEPT_PARTITIONS

    def _send(self, producer: Any, name: str, topic: str, size_bytes: int, index: int | None = None) -> None:
        partitions = KEPT_PARTITIONS if topic == KEPT else FILL_PARTITIONS
        index = self._random.randrange(partitions) if index is None else index
        self._sent += 1
        value = f"{name}.{self._sent}"
        partition = f"{topic}-{index}"
        operation = self._diary.recorder.invoke(name, "send", [[partition, None, value]]) if topic == KEPT else None

        def on_delivery(error: Any, message: Any) -> None:
            if error is None:
                self.acked += 1
                self._values.setdefault((topic, index), set()).add(value)
                if operation is not None:
                    operation.ok([[partition, message.offset(), value]])
                return
            if error.code() == STORAGE_ERROR:
                self.refusals += 1
            else:
                self.problems.append(f"{name} was told {error}, not of the disk")
            if operation is not None:
                operation.fail(str(error))

        body = value.encode() + b" " + self._random.randbytes(size_bytes)
        producer.produce(topic, body, partition=index, on_delivery=on_delivery)


def run_fills(
    directory: Path, numbers: Iterable[int], seed: int, *, kind: str | None = None, plant: str | None = None
) -> tuple[Fills, Report]:
    """Fills a disk repeatedly; the number selects how it is freed, and whether the node is restarted before."""
    with a_small_disk(directory, kind) as disk:
        victim = (
            Victim(disk, settings=SETTINGS) if plant is None else ComposedVictim(disk, plant=plant, settings=SETTINGS)
        )
        victim.log_to(directory / "victim.log")
        with victim:
            fills = Fills(disk, victim, seed)
            for number in numbers:
                fills.fill(number)
                if fills.problems:
                    break
            return fills, fills.finish()


# --- campaigns --------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fills", type=int, default=20)
    parser.add_argument("--file-system", choices=KINDS, help="else one after the other")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    os.nice(10)
    runs = load_runs()
    is_clean = True
    for kind in [options.file_system] if options.file_system else KINDS:
        seed, began = 1 + len(runs), time.monotonic()
        with tempfile.TemporaryDirectory(prefix="penstock-full-") as directory:
            fills, report = run_fills(Path(directory), range(options.fills), seed, kind=kind)
        print(report.text(), *fills.problems, sep="\n")
        runs.append(_row(kind, seed, fills, report, time.monotonic() - began))
        print(runs[-1])
        is_clean = is_clean and report.is_clean and not fills.problems
        if options.record:
            write(runs)
    if not is_clean:
        raise SystemExit("not clean")


def _row(kind: str, seed: int, fills: Fills, report: Report, seconds: float) -> dict[str, Any]:
    return {
        "file_system": kind,
        "seed": seed,
        "fills": len(fills.recovery_s),
        "restarts": fills.restarts,
        "acked": fills.acked,
        "refused": fills.refusals,
        "recovery_s_max": round(max(fills.recovery_s), 1),
        "findings": sum(report.anomalies.values()) + len(fills.problems),
        "seconds": round(seconds),
        "date": datetime.date.today().isoformat(),
        "revision": revision(),
    }


def load_runs() -> list[dict[str, Any]]:
    path = RESULTS / "disk-full.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def write(runs: list[dict[str, Any]]) -> None:
    (RESULTS / "disk-full.json").write_text(json.dumps(runs, indent=1) + "\n")
    rows = [
        f"| {run['file_system']} | {run['fills']} | {run['restarts']} | {run['acked']:,} | {run['refused']:,} "
        f"| {run['recovery_s_max']} s | {run['findings']} | {run['seconds']} | {run['date']} | {run['revision']} |"
        for run in runs
    ]
    text = f"""# Full disks of the real server

`penstock server` has a file system of 64 MB to itself and is filled by librdkafka until nothing fits; every fifth time
it is not the bytes that run out but the files. Then, each time:

1. a producer without retries is told KAFKA_STORAGE_ERROR, and nothing else;
2. everything that was acknowledged can be read, and metadata is answered;
3. every third time the node is restarted while the disk is full, by SIGTERM or SIGKILL, comes up, and 2 holds again;
4. room is made: the topic is deleted, its records are deleted, retention deletes them, or somebody else's files go;
5. producing succeeds again without a restart, also for an idempotent producer that had kept trying.

At the end [`penstock.verify`](../verify.md) looks at the topic that was there all the time: every acknowledged record
once, in order, and none that was refused. Any departure is a finding. *Recovery* is the longest time from the request
that makes room to the next acknowledged record in every partition; retention looks once a second here.

| File system | Fills | Restarts while full | Acknowledged | Refused | Recovery | Findings | Seconds | Date | Revision |
|---|--:|--:|--:|--:|--:|--:|--:|---|---|
{chr(10).join(rows)}

`./dev campaign full-disks --fills 20` adds to this table (as root, for the mount); Python {platform.python_version()},
2 shared cores, 24 GiB.
"""
    (RESULTS / "disk-full.md").write_text(text)


if __name__ == "__main__":
    main()
