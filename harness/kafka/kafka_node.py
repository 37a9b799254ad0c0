"""Apache Kafka: a broker and controller in one process on loopback, from Maven's artifacts.

    with KafkaNode(directory) as node:
        with node.connect() as client: ...

The caller's properties override ours. The log of the process stays in the directory; leaving the context deletes the
data.
"""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from harness import maven
from harness.ports import free_port
from harness.raw_client import RawClient

PROJECT = Path(__file__).parent / "broker"
HOST = "127.0.0.1"
CLUSTER_ID = "PenstockTestsKafkaNode"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
POLL_S = 0.05
LOG_TAIL_BYTES = 16 * 1024

# For a fast start on a small machine. Benchmarks pass options with the full compiler and more heap.
JAVA = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

PROPERTIES: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "BROKER",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    # One node, so one replica; one partition, so that coordinators load quickly.
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class KafkaFailed(Exception):
    """The process ended or did not become ready; the text is the end of its log."""


class KafkaNode:
    """One node with its files under `directory`. Use it as a context manager, or `start` and `stop` it."""

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        java: Sequence[str] = JAVA,
        *,
        start_timeout_s: float = START_TIMEOUT_S,
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        broker_port, controller_port = _free_ports(2)
        self.bootstrap = f"{HOST}:{broker_port}"
        self.data = directory / "data"
        self.log = directory / "kafka.log"
        self.properties: Mapping[str, str] = {
            **PROPERTIES,
            "listeners": f"BROKER://{self.bootstrap},CONTROLLER://{HOST}:{controller_port}",
            "controller.quorum.voters": f"{PROPERTIES['node.id']}@{HOST}:{controller_port}",
            "log.dirs": str(self.data),
            **(properties or {}),
        }
        self._settings = directory / "server.properties"
        self._options = java
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._process: subprocess.Popen[bytes] | None = None

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
        shutil.rmtree(self.data, ignore_errors=True)

    @property
    def pid(self) -> int | None:
        """The process id, while the process runs."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Starts the process, on existing data if there is any, and waits until it serves clients."""
        library = maven.build(PROJECT) / "lib"
        if not self.data.exists():
            self._settings.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
            formatting = self._java(library, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c")
            if formatting.wait():
                raise KafkaFailed(self.log_tail())
        self._process = self._java(library, "kafka.Kafka")
        self._wait_until_ready(self._process)

    def stop(self) -> None:
        """Terminates the process, and kills it if it does not end in time."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(self._stop_timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """Kills the process, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def connect(self) -> RawClient:
        """A connection to the broker."""
        return RawClient(self.bootstrap)

    def log_tail(self) -> str:
        """The end of the log."""
        return self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")

    def complaints(self, since_bytes: int = 0) -> str:
        """The warnings, errors and stack traces in the log since it had this size."""
        lines = self.log.read_bytes()[since_bytes:].decode(errors="replace").splitlines()
        return "\n".join(line for line in lines if " INFO " not in line)[-LOG_TAIL_BYTES:]

    def _java(self, library: Path, *arguments: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                ["java", *self._options, "-Dlog4j2.level=INFO", "-cp", f"{library}/*", *arguments, str(self._settings)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        """Waits until the broker answers ApiVersions and Metadata lists it: the controller has unfenced it."""
        deadline = time.monotonic() + self._start_timeout_s
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise KafkaFailed(f"ended with {process.returncode}\n{self.log_tail()}")
            with contextlib.suppress(OSError), self.connect() as client:
                if client.metadata().brokers:
                    return
            time.sleep(POLL_S)
        raise KafkaFailed(f"not ready after {self._start_timeout_s} s\n{self.log_tail()}")


def _free_ports(count: int) -> list[int]:
    """Distinct free ports that no outgoing connection is given while the node is down."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)
