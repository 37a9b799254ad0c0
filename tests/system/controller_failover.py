"""How long the cluster cannot be changed after its active controller was killed: Penstock, and Apache Kafka beside it.

    python -m tests.system.controller_failover --count 50 --kafka-count 20 --record

Three controllers and a broker, each a process of its own, with the same script and client: the leader is killed
(SIGKILL), a topic is requested right after that, and the clock stops when its creation is acknowledged. Then the
controller is restarted, and all must have caught up before the next kill. Both run with their defaults. `--record`
writes docs/results/controller-failover.md.
"""

import argparse
import asyncio
import datetime
import json
import platform
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from harness import maven
from harness.kafka.kafka_node import CLUSTER_ID, JAVA, PROJECT
from harness.ports import free_port
from penstock.client.admin.admin import Admin
from penstock.client.admin.quorum import QuorumDescription
from penstock.client.cluster import Cluster
from tests.system.mortal_node import END_S, Broken
from tests.system.quorum_kills import (
    BROKER,
    FAILOVER_S,
    READY_S,
    RESULTS,
    Quorum,
    make_topic,
    percentile,
    until_all_vote,
)

CONTROLLERS: Final = 3


class Killable(Protocol):
    """A controller process."""

    def start(self) -> None: ...

    def end(self, number: int) -> None: ...


class Controllers(Protocol):
    """Controllers and a broker."""

    address: str

    @property
    def killable(self) -> Mapping[int, Killable]: ...


class KafkaProcess:
    """One Apache Kafka node across restarts."""

    def __init__(self, directory: Path, node_id: int, settings: Mapping[str, str]) -> None:
        self._log = directory / f"kafka-{node_id}.log"
        self._file = directory / f"kafka-{node_id}.properties"
        self._data = directory / f"kafka-{node_id}"
        own = {**settings, "node.id": str(node_id), "log.dirs": str(self._data)}
        self._file.write_text("".join(f"{name}={value}\n" for name, value in own.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def format(self) -> None:
        if self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c").wait():
            raise Broken(self._log.read_text(errors="replace")[-2000:])

    def start(self) -> None:
        self._process = self._java("kafka.Kafka")

    def end(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(END_S)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(END_S)

    def _java(self, *arguments: str) -> "subprocess.Popen[bytes]":
        library = maven.build(PROJECT) / "lib"
        with self._log.open("ab") as log:
            return subprocess.Popen(
                ["java", *JAVA, "-Dlog4j2.level=WARN", "-cp", f"{library}/*", *arguments, str(self._file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


class KafkaQuorum:
    """Three controllers and a broker of Apache Kafka."""

    def __init__(self, directory: Path) -> None:
        ports = {node_id: free_port() for node_id in range(1, CONTROLLERS + 1)}
        shared = {
            "controller.quorum.voters": ",".join(f"{each}@127.0.0.1:{port}" for each, port in ports.items()),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
        self.killable = {
            node_id: KafkaProcess(
                directory,
                node_id,
                {**shared, "process.roles": "controller", "listeners": f"CONTROLLER://127.0.0.1:{port}"},
            )
            for node_id, port in ports.items()
        }
        self.address = f"127.0.0.1:{free_port()}"
        self._broker = KafkaProcess(
            directory,
            BROKER,
            {
                **shared,
                "process.roles": "broker",
                "listeners": f"BROKER://{self.address}",
                "inter.broker.listener.name": "BROKER",
                "auto.create.topics.enable": "false",
            },
        )

    def __enter__(self) -> Self:
        for each in (*self.killable.values(), self._broker):
            each.format()
        for each in (*self.killable.values(), self._broker):
            each.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for each in (*self.killable.values(), self._broker):
            each.stop()


class PenstockQuorum(Quorum):
    """Three controllers and a broker of Penstock."""

    @property
    def killable(self) -> Mapping[int, Killable]:
        return self.controllers


async def measure(quorum: Controllers, count: int) -> list[float]:
    """Seconds without a controller, for each of `count` kills of the leader."""
    async with Cluster(quorum.address, request_timeout_ms=2_000, timeout_ms=int(READY_S * 1000)) as cluster:
        admin = Admin(cluster)
        await make_topic(admin, "first")
        seconds: list[float] = []
        for number in range(count):
            await until_all_vote(admin, CONTROLLERS)
            leader = (await _leader(admin)).leader_id
            quorum.killable[leader].end(signal.SIGKILL)
            killed = time.monotonic()
            await make_topic(admin, f"after-{number}")
            seconds.append(time.monotonic() - killed)
            quorum.killable[leader].start()
    return seconds


async def _leader(admin: Admin) -> QuorumDescription:
    return await admin.describe_quorum(timeout_ms=int(FAILOVER_S * 1000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50, help="kills of Penstock's leader")
    parser.add_argument("--kafka-count", type=int, default=20)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    path = RESULTS / "controller-failover.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for name, count in (("Penstock", options.count), ("Apache Kafka 4.3", options.kafka_count)):
        if not count:
            continue
        with tempfile.TemporaryDirectory(prefix="penstock-failover-") as directory:
            made = PenstockQuorum(Path(directory), CONTROLLERS) if name == "Penstock" else KafkaQuorum(Path(directory))
            with made as quorum:
                seconds = asyncio.run(measure(quorum, count))
        found[name] = {"seconds": [round(each, 3) for each in seconds], "date": datetime.date.today().isoformat()}
        print(f"{name}: {_row(name, found[name])}", flush=True)
    if options.record:
        path.write_text(json.dumps(found, indent=1) + "\n")
        (RESULTS / "controller-failover.md").write_text(page(found))


def _row(name: str, run: Mapping[str, Any]) -> str:
    seconds = run["seconds"]
    cells = [f"{percentile(seconds, each):.2f}" for each in (50, 90, 99)]
    return f"| {name} | {len(seconds)} | {' | '.join(cells)} | {max(seconds):.2f} | {run['date']} |"


def page(found: Mapping[str, Mapping[str, Any]]) -> str:
    rows = "\n".join(_row(name, run) for name, run in found.items())
    return f"""# Fail-over of the controller

Three controllers and a broker, each a process of its own on one machine of two shared cores. The leader of the metadata
quorum is killed (SIGKILL), a topic is asked for at the broker right after that, and the clock stops when its creation
is acknowledged. The same script, client and machine for both; both with their defaults.

| | Kills | p50 s | p90 s | p99 s | Longest s | Date |
|---|--:|--:|--:|--:|--:|---|
{rows}

`python -m tests.system.controller_failover --count 50 --kafka-count 20 --record` writes this page; Python
{platform.python_version()}.
"""


if __name__ == "__main__":
    main()
