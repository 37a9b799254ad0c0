"""Clients of several families on one side of a cluster with two listeners; runs in the namespace of that side.

    ip netns exec NAMESPACE python -m tests.system.listener_clients SIDE BOOTSTRAP UNREACHABLE

Every family writes and reads a topic of its own, of which each node leads a partition, and joins a group that reads it.
Then it prints a line and waits for one: meanwhile leaders and coordinators move. The same members must go on reading.
At the end it prints the families with their versions, as JSON. UNREACHABLE are addresses of the other side.
"""

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Final

from harness.kafka.oracle import Oracle
from penstock import Client
from tests.compatibility import debian
from tests.compatibility.rows.java import Java
from tests.compatibility.rows.row import Joining, Member, Message, Operation, Place, Producing, Row
from tests.compatibility.rows.table import offers, row_class

FAMILIES: Final = ("librdkafka", "aiokafka", "kafka_python", "java", "franz_go")
BONUS: Final = "kcat"
"""librdkafka again, on the command line; left out where it is not installed and cannot be."""
NODES: Final = (1, 2, 3)
PARTITIONS: Final = len(NODES)
RECORDS: Final = 3
"""Records per partition and stage."""
READ_S: Final = 300.0


class Family:
    """One client: what it has written, and its member of a group."""

    def __init__(self, row: Row, side: str, module: str, bootstrap: str) -> None:
        self.row = row
        self.topic = f"{side}-{module}"
        self._bootstrap = bootstrap
        self._written = 0
        """Records per partition."""
        self._member: Member | None = None
        self._read: set[Place] = set()

    def write(self) -> None:
        """Writes to every partition, whose leader is another node each."""
        messages = [
            Message(key, f"{self._written + number}".encode())
            for partition in range(PARTITIONS)
            for number, key in enumerate(self._keys(partition))
        ]
        self.row.produce(self._bootstrap, self.topic, messages, Producing())
        self._written += RECORDS

    def _keys(self, partition: int) -> list[bytes]:
        keys = (str(number).encode() for number in range(1_000))
        return [key for key in keys if self.row.partition_of(key, PARTITIONS) == partition][:RECORDS]

    def read(self) -> None:
        """Reads every partition from its leader, and everything as a member of a group."""
        for partition in range(PARTITIONS):
            found = self.row.consume(self._bootstrap, self.topic, partition, 0, self._written)
            assert len(found) == self._written, f"partition {partition} of {self.topic}: {len(found)} records"
        if self._member is None:
            self._member = self.row.join(Joining(self._bootstrap, f"group-{self.topic}", self.topic))
        wanted = {(partition, offset) for partition in range(PARTITIONS) for offset in range(self._written)}
        deadline = time.monotonic() + READ_S
        while not self._read >= wanted:
            assert time.monotonic() < deadline, f"{self.topic}: {len(self._read)} of {len(wanted)} records came"
            self._read.update(self._member.poll())

    def leave(self) -> None:
        """Commits, and leaves the group: its coordinator may have moved."""
        assert self._member is not None
        if offers(type(self.row), Operation.CLASSIC_COMMIT_SYNC):
            self._member.commit()
        self._member.leave()


def install() -> None:
    """Fetches and builds what the clients need; nothing can be fetched in a namespace of the test."""
    with suppress(debian.Missing, subprocess.CalledProcessError):
        debian.command(BONUS, BONUS)
    with ExitStack() as stack:
        rows(stack)


def rows(stack: ExitStack) -> dict[str, Row]:
    """The clients by module."""
    found: dict[str, Row] = {"java": Java(stack.enter_context(Oracle()))}
    found |= {module: row_class(module)() for module in FAMILIES if module != "java"}
    if shutil.which(BONUS) is not None:
        found[BONUS] = row_class(BONUS)()
    for each in found.values():
        stack.callback(each.close)
    return found


async def prepare(bootstrap: str, topics: Sequence[str], own: Sequence[str]) -> None:
    """Creates the topics, and checks the addresses that the cluster describes."""
    async with Client(bootstrap, timeout_ms=120_000) as client:
        told = sorted(str(each.address) for each in (await client.admin.describe_cluster()).brokers)
        assert told == sorted(own), told
        for topic in topics:
            assignments = [(first, first % 3 + 1, (first + 1) % 3 + 1) for first in NODES]
            await client.admin.create_topic(topic, assignments=assignments)


def check_unreachable(addresses: Sequence[str]) -> None:
    """Checks that this namespace has no way to the addresses of the other side."""
    for each in addresses:
        host, _, port = each.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError:
            continue
        raise AssertionError(f"{each} can be reached from here")


def main(side: str, bootstrap: str, unreachable: str) -> None:
    """See the module."""
    check_unreachable(unreachable.split(","))
    with ExitStack() as stack:
        clients = rows(stack)
        families = [Family(row, side, module, bootstrap) for module, row in clients.items()]
        asyncio.run(prepare(bootstrap, [each.topic for each in families], bootstrap.split(",")))
        for each in families:
            each.write()
            each.read()
        print("read", flush=True)
        sys.stdin.readline()
        for each in families:
            each.write()
            each.read()
            each.leave()
        print(json.dumps({module: row.version() for module, row in clients.items()}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
