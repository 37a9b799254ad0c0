"""Group members in a process of their own: librdkafka consumers, a thread each, that read, commit and keep a diary.

    python -m tests.system.group_members BOOTSTRAP TOPIC DIARY PACE_S < commands

A command is a line of JSON: {"do": "start", "name": …, "group": …, "flavour": …, "instance": …}, {"do": "stop", "name":
…}, {"do": "restart", "name": …} (which closes the consumer and begins a new life). At the end of the commands all
members leave. The value of a record is its offset in decimal; any other value is a finding. Reads are written to the
diary before they are committed.
"""

import json
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition

from harness.load import CALM
from tests.system.group_diaries import Diary

EAGER, COOPERATIVE, CONSUMER = "eager", "cooperative", "consumer"
FLAVOURS: Final = (EAGER, COOPERATIVE, CONSUMER)
BATCH: Final = 500
ASK_S: Final = 5.0
SESSION_MS: Final = 10_000
HEARTBEAT_MS: Final = 1_000
POLL_MS_MAX: Final = 60_000
COME_BACK_S: Final = 1.0
UNRELEASED: Final = "instance ID is still used"
"""librdkafka's message for UNRELEASED_INSTANCE_ID; librdkafka does not retry by itself."""
UNSTARTED: Final = "Failed to fetch committed offset"
"""librdkafka logs this once, then keeps a partition that it will never read."""
MAGIC: Final = b"CGMDv2:"


def options_of(flavour: str) -> dict[str, Any]:
    if flavour == CONSUMER:
        return {"group.protocol": "consumer"}
    strategy = "cooperative-sticky" if flavour == COOPERATIVE else "range"
    timing = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
    return {"group.protocol": "classic", "partition.assignment.strategy": strategy, **timing}


class Member(threading.Thread):
    """One member across restarts."""

    def __init__(self, diary: Diary, bootstrap: str, topic: str, pace_s: float, spec: dict[str, Any]) -> None:
        super().__init__(name=spec["name"], daemon=True)
        self._diary = diary
        self._topic = topic
        self._pace_s = pace_s
        self._group = spec["group"]
        self._instance: str | None = spec["instance"]
        self._options: dict[str, Any] = {
            **CALM,
            "bootstrap.servers": bootstrap,
            "group.id": self._group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "max.poll.interval.ms": POLL_MS_MAX,
            "check.crcs": True,
            "fetch.wait.max.ms": 1_000,
            "queued.min.messages": 1_000,
            # There are many members: they must not keep a broker busy with metadata requests.
            "reconnect.backoff.ms": 100,
            "reconnect.backoff.max.ms": 1_000,
            "topic.metadata.refresh.interval.ms": 10_000,
            **options_of(spec["flavour"]),
        }
        if self._instance is not None:
            self._options["group.instance.id"] = self._instance
        self.is_to_stop = threading.Event()
        self.is_to_restart = threading.Event()
        self._lives = 0
        self._commits = 0
        self._life = self._who = ""
        self._owned: set[int] = set()
        self._unsaved: dict[int, int] = {}
        self._consumer: Any = None

    def run(self) -> None:
        while not self.is_to_stop.is_set():
            self.is_to_restart.clear()
            self._live()

    def _live(self) -> None:
        self._lives += 1
        self._life = f"{self.name}.{self._lives}"
        self._who = self._instance or self._life
        self._owned, self._unsaved = set(), {}
        self._write("began")
        self._consumer = confluent_kafka.Consumer(self._options)
        self._consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        try:
            while not (self.is_to_stop.is_set() or self.is_to_restart.is_set()):
                self._step()
        finally:
            try:
                self._consumer.close()
            except SystemError as error:  # of the binding, once in thousands; the consumer reads nothing more anyway
                self._write("torn", text=str(error))
            self._write("ended")

    def _write(self, kind: str, **more: Any) -> None:
        self._diary.write(kind, group=self._group, who=self._who, life=self._life, **more)

    # --- callbacks

    @property
    def _generation(self) -> int:
        """Generation or epoch: librdkafka exposes it only for transactions."""
        told = self._consumer.consumer_group_metadata()
        if not told.startswith(MAGIC):
            raise ValueError(f"this librdkafka writes its group metadata in another way: {told!r}")
        return int(struct.unpack_from("=i", told, len(MAGIC))[0])

    def _on_assign(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        self._owned |= {each.partition for each in partitions}
        self._write("assigned", generation=self._generation, owned=sorted(self._owned))
        self._fetch(partitions)

    def _on_revoke(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        generation = self._generation
        self._give_up(partitions)
        self._write("revoked", generation=generation, owned=sorted(self._owned))

    def _on_lost(self, _consumer: Any, partitions: list[TopicPartition]) -> None:
        self._give_up(partitions)
        self._write("lost", owned=sorted(self._owned))

    def _give_up(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._owned.discard(each.partition)
            self._unsaved.pop(each.partition, None)

    def _fetch(self, partitions: list[TopicPartition]) -> None:
        """Fetches the group's committed offsets when partitions are assigned."""
        began = time.monotonic_ns()
        try:
            found = self._consumer.committed(partitions, timeout=ASK_S)
        except KafkaException:  # the coordinator is unavailable
            return
        offsets = [[each.partition, max(each.offset, -1)] for each in found if each.error is None]
        self._write("fetched", began=began, offsets=offsets)

    # --- reading and committing

    def _step(self) -> None:
        try:
            messages = self._consumer.consume(BATCH, self._pace_s)
        except (KafkaException, RuntimeError) as error:
            self._on_fatal(str(error))
            return
        runs: dict[int, list[int]] = {}
        for message in messages:
            if (told := message.error()) is not None:
                if told.fatal():
                    self._on_fatal(str(told))
                elif told.str().startswith(UNSTARTED):
                    self._write("problem", text=told.str())
                continue
            if message.partition() in self._owned:  # else the partition was revoked in the meantime
                self._process(runs.setdefault(message.partition(), []), message)
        for partition, run in runs.items():
            self._write_run(partition, run)
            self._unsaved[partition] = run[-1] + 1
        if self._unsaved:
            self._commit()

    def _on_fatal(self, text: str) -> None:
        """Under KIP-848 a static member has to wait until the session of its killed predecessor has expired."""
        if UNRELEASED in text and self._instance is not None:
            self._write("refused", text=text)
            self.is_to_restart.set()
            self.is_to_stop.wait(COME_BACK_S)
        else:
            self._write("problem", text=f"it cannot go on: {text}")
            self.is_to_stop.set()

    def _process(self, run: list[int], message: Any) -> None:
        offset = message.offset()
        if message.value() != b"%d" % offset:
            self._write("problem", text=f"{message.value()!r} lies at {offset} of {message.partition()}")
        run.append(offset)

    def _write_run(self, partition: int, run: list[int]) -> None:
        """Writes a run in pieces, split at gaps or steps back."""
        start = at = run[0]
        for offset in run[1:]:
            if offset != at + 1:
                self._write("read", partition=partition, start=start, end=at + 1)
                start = offset
            at = offset
        self._write("read", partition=partition, start=start, end=at + 1)

    def _commit(self) -> None:
        self._commits += 1
        wanted = dict(self._unsaved)
        self._write("commit", number=self._commits, offsets=sorted(wanted.items()))
        try:
            done = self._consumer.commit(
                offsets=[TopicPartition(self._topic, partition, offset) for partition, offset in wanted.items()],
                asynchronous=False,
            )
        except KafkaException as error:  # outcome unknown; partitions that are still owned are committed again
            self._write("unsure", number=self._commits, code=error.args[0].name())
            return
        saved = [each.partition for each in done if each.error is None]
        self._write("committed", number=self._commits, partitions=saved)
        for partition in saved:
            if self._unsaved.get(partition) == wanted[partition]:
                del self._unsaved[partition]


def main() -> None:
    bootstrap, topic, path, pace_s = sys.argv[1:]
    members: dict[str, Member] = {}
    leaving: list[Member] = []
    with Diary(Path(path)) as diary:
        for line in sys.stdin:
            command = json.loads(line)
            if command["do"] == "start":
                members[command["name"]] = Member(diary, bootstrap, topic, float(pace_s), command)
                members[command["name"]].start()
            elif command["do"] == "restart":
                members[command["name"]].is_to_restart.set()
            else:
                leaving.append(members.pop(command["name"]))
                leaving[-1].is_to_stop.set()
        for each in members.values():
            each.is_to_stop.set()
        for each in (*members.values(), *leaving):
            each.join()


if __name__ == "__main__":
    main()
