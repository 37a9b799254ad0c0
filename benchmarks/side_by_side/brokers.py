"""The contenders, each started as its users start it, on the brokers' cores.

Kafka runs with the options of its own start script. Apart from listeners and data directories, both brokers run on
their defaults; deleted files are removed at once, because a benchmark deletes more than a disk holds.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.side_by_side.frames import Batch
from harness import machine
from harness.kafka.kafka_node import PROJECT, KafkaNode
from harness.machine import ROOT, pinned
from harness.raw_client import RawClient, Topic
from penstock import __version__
from penstock.model.errors import ErrorCode
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.wire.types import ZERO_UUID

HOST = "127.0.0.1"
REMOVED_S = 30.0
REMAINS_BYTES = 4 * 1024 * 1024
"""Tolerance, because the brokers' own files grow, too."""
START_S = 300.0
STOP_S = 300.0
TOPIC_S = 300.0
"""Long enough to create ten thousand partitions."""
LATEST = -1
DELETED_AT_ONCE = {"log.segment.delete.delay.ms": "1000"}

# The JVM options of kafka-server-start.sh and kafka-run-class.sh of Kafka 4.
KAFKA_JAVA = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


class Broker(ABC):
    """A contender that stores and serves records."""

    name: str
    version: str
    address: str
    ready_s: float = 0.0
    """Time from the start of the process to its first useful response."""
    was_warmed: bool = False
    """Whether this process has had its first long warm-up."""
    is_jvm: bool = False
    """Whether it runs on a JVM, which gets faster for about a minute."""

    def __init__(self, directory: Path, cpus: Sequence[int]) -> None:
        self.directory = directory
        self.cpus = cpus
        directory.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    @abstractmethod
    def pid(self) -> int:
        """The process id."""

    @property
    def pids(self) -> tuple[int, ...]:
        """The ids of all its processes, without their children."""
        return (self.pid,)

    @abstractmethod
    def start(self) -> None:
        """Starts the broker, on its existing data if there is any."""

    @abstractmethod
    def stop(self) -> None:
        """Stops the broker; its data stays."""

    def create(self, name: str, partitions: int, settings: Mapping[str, str], batch: Batch | None = None) -> Topic:
        """Creates a topic and waits until it can be used. Only the bare limit needs the batch that will be written."""
        del batch
        with RawClient(self.address, TOPIC_S) as client:
            return client.create_topic(name, partitions, settings)

    def end(self, topic: Topic, partitions: int) -> int:
        """The number of records in a topic without deletions: the sum of its end offsets."""
        wanted = [ListOffsetsPartition(partition_index=each, timestamp=LATEST) for each in range(partitions)]
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=topic.name, partitions=wanted)]
        )
        with RawClient(self.address) as client:
            (found,) = client.ask(request, ListOffsetsResponse).topics
        assert all(part.error_code is ErrorCode.NONE for part in found.partitions), found
        return sum(part.offset for part in found.partitions)

    def delete(self, topic: Topic) -> None:
        """Deletes a topic."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=topic.name, topic_id=ZERO_UUID)],
            topic_names=[topic.name],
            timeout_ms=int(START_S * 1000),
        )
        with RawClient(self.address, TOPIC_S) as client:
            (answer,) = client.ask(request, DeleteTopicsResponse).responses
        assert answer.error_code is ErrorCode.NONE, answer

    def used_bytes(self) -> int:
        """Disk space of its files."""
        total = 0
        for path in self.files():
            with contextlib.suppress(FileNotFoundError):
                total += path.stat().st_blocks * 512
        return total

    def wait_until_removed(self, before_bytes: int) -> None:
        """Waits until deleted files are gone, so that their removal falls into no measured window."""
        deadline = time.monotonic() + REMOVED_S
        while self.used_bytes() > before_bytes + REMAINS_BYTES and time.monotonic() < deadline:
            time.sleep(0.1)

    def files(self) -> list[Path]:
        """All data files; some may be deleted while they are listed."""
        return [Path(folder) / name for folder, _, names in os.walk(self.directory) for name in names]


class Penstock(Broker):
    """`penstock server`."""

    name = "penstock"
    version = f"Penstock {__version__}"

    def __init__(
        self,
        directory: Path,
        cpus: Sequence[int],
        settings: Mapping[str, str] | None = None,
        sources: Path | None = None,
    ) -> None:
        """`sources` is the folder from which the package is imported, by default that of the working tree."""
        super().__init__(directory, cpus)
        self.address = f"{HOST}:{_free_port()}"
        self._environment = {**os.environ, "PYTHONPATH": str(sources)} if sources is not None else None
        self._process: subprocess.Popen[bytes] | None = None
        self._properties = directory / "server.properties"
        lines = {
            "node.id": "1",
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(directory / "data"),
            **DELETED_AT_ONCE,
            **(settings or {}),
        }
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        log = self.directory / "penstock.log"
        command = [sys.executable, "-m", "penstock", "server", "--config", str(self._properties)]
        with log.open("ab") as out, pinned(self.cpus):
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=self._environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError), RawClient(self.address) as client:
                if client.metadata().brokers:
                    self.ready_s = machine.age_s(self.pid)
                    return
            time.sleep(0.01)
        raise RuntimeError(f"Penstock did not start:\n{log.read_text()[-2000:]}")

    def stop(self) -> None:
        if self._process is not None:
            _end(self._process)
            self._process = None


class Kafka(Broker):
    """Apache Kafka, broker and controller in one process."""

    name = "kafka"
    version = "Apache Kafka"
    is_jvm = True

    def __init__(self, directory: Path, cpus: Sequence[int], settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, cpus)
        self._node = KafkaNode(
            directory,
            {**DELETED_AT_ONCE, **(settings or {})},
            KAFKA_JAVA,
            start_timeout_s=START_S,
            stop_timeout_s=STOP_S,
        )
        self.address = self._node.bootstrap

    @property
    def pid(self) -> int:
        assert self._node.pid is not None
        return self._node.pid

    def start(self) -> None:
        with pinned(self.cpus):
            self._node.start()
        self.ready_s = machine.age_s(self.pid)
        self.version = self.known_version()

    @staticmethod
    def known_version() -> str:
        """The version of the artifacts that Maven has fetched."""
        (jar,) = (PROJECT / "target" / "lib").glob("kafka-clients-*.jar")
        return f"Apache Kafka {jar.stem.removeprefix('kafka-clients-')}"

    def stop(self) -> None:
        self._node.stop()


class BareLimit(Broker):
    """`bare.py`: a separate process for every topic."""

    name = "bare"
    version = "bare loop"

    def __init__(self, directory: Path, cpus: Sequence[int]) -> None:
        super().__init__(directory, cpus)
        self._process: subprocess.Popen[bytes] | None = None
        self._batch: Batch | None = None
        self._data = directory / "data"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Does nothing: `create` starts the process."""

    def create(self, name: str, partitions: int, settings: Mapping[str, str], batch: Batch | None = None) -> Topic:
        assert batch is not None
        self.stop()
        self._data.mkdir()
        self._batch = batch
        topic = Topic(name, b"bare limit topic")
        shape = [str(partitions), str(len(batch.data)), str(batch.records), topic.topic_id.hex()]
        command = [sys.executable, "-m", "benchmarks.side_by_side.bare", str(self._data), *shape]
        with pinned(self.cpus):
            process = subprocess.Popen(command + ["--sync"] * ("sync" in settings), cwd=ROOT, stdout=subprocess.PIPE)
        self._process = process
        assert process.stdout is not None
        self.address = f"{HOST}:{int(process.stdout.readline())}"
        self.ready_s = machine.age_s(process.pid)
        return topic

    def end(self, topic: Topic, partitions: int) -> int:
        """Computed from the sizes of its files, which contain only batches."""
        del topic
        assert self._batch is not None
        sizes = [(self._data / f"{number}.log").stat().st_size for number in range(partitions)]
        assert all(size % len(self._batch.data) == 0 for size in sizes)
        return sum(sizes) // len(self._batch.data) * self._batch.records

    def delete(self, topic: Topic) -> None:
        del topic
        self.stop()

    def stop(self) -> None:
        if self._process is not None:
            _end(self._process)
            self._process = None
        shutil.rmtree(self._data, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
