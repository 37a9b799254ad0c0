"""`penstock verify`, run as a user does, on three nodes that are killed while it runs.

A kill comes when all replicas are in sync and records arrive. The other two nodes are paused (SIGSTOP) for a second, so
that nothing reaches them; then the victim is killed (SIGKILL), and they resume. Records acknowledged in that second
without them are lost: a correct cluster makes its clients wait. The victim restarts when the others lead its
partitions. The first victim leads the most partitions, the next one is the active controller, and so on in turn; kills
are spread over the time in which the command writes, as far as nodes come back in time.
"""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Self

from benchmarks.side_by_side.trios import KafkaTrio
from penstock import __version__
from penstock.client.admin.admin import Admin
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError
from penstock.client.metadata import Topic, TopicPartition
from penstock.client.offsets import Moment, list_offsets
from tests.system.cluster_faults import NODES, Town
from tests.system.commands import ENVIRONMENT, PENSTOCK
from tests.system.mortal_node import Broken

PREFIX: Final = "penstock-verify-"
STILL_S: Final = 1.0
PAUSE_S: Final = 0.1
ASK_MS: Final = 10_000
WAIT_S: Final = 180.0
END_S: Final = 300.0
"""Three times --settle, the deletion of the topic, and some seconds for the checker."""


class Mortals(Protocol):
    """Three nodes that can be killed."""

    version: str
    bootstrap: str

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def send(self, node_id: int, number: int) -> None: ...

    def kill(self, node_id: int) -> None: ...

    def start(self, node_id: int) -> None: ...


class PenstockNodes:
    """Penstock, with a planted bug if one is named."""

    def __init__(self, directory: Path, plant: str | None = None) -> None:
        self._town = Town(directory, plant=plant)
        self.version = f"Penstock {__version__}"
        self.bootstrap = self._town.bootstrap

    def __enter__(self) -> Self:
        self._town.__enter__()
        try:
            self._town.until_all_serve()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._town.__exit__(None, None, None)

    def send(self, node_id: int, number: int) -> None:
        self._town.nodes[node_id].send(number)

    def kill(self, node_id: int) -> None:
        self._town.nodes[node_id].end(signal.SIGKILL)

    def start(self, node_id: int) -> None:
        self._town.nodes[node_id].start()


class KafkaNodes:
    """Apache Kafka, started by its own script."""

    def __init__(self, directory: Path) -> None:
        self._trio = KafkaTrio(directory, sorted(os.sched_getaffinity(0)))
        self.version = ""
        self.bootstrap = ",".join(self._trio.addresses.values())

    def __enter__(self) -> Self:
        self._trio.__enter__()
        self.version = self._trio.version
        return self

    def __exit__(self, *_: object) -> None:
        self._trio.__exit__(None, None, None)

    def send(self, node_id: int, number: int) -> None:
        pid = self._trio.nodes[node_id].pid
        assert pid is not None
        os.kill(pid, number)

    def kill(self, node_id: int) -> None:
        self._trio.nodes[node_id].kill()

    def start(self, node_id: int) -> None:
        self._trio.nodes[node_id].start()


# --- kills ------------------------------------------------------------------------------------------------------------


class Nemesis:
    """Observes the topic of the run as any client does, and kills nodes."""

    def __init__(self, nodes: Mortals, is_over: Callable[[], bool], say: Callable[[str], None]) -> None:
        self._nodes = nodes
        self._is_over = is_over
        self._say = say
        self._cluster = Cluster(nodes.bootstrap, request_timeout_ms=2_000, timeout_ms=ASK_MS)
        self._admin = Admin(self._cluster)
        self._records = 0

    async def strike(self, kills: int, seconds: float) -> list[str]:
        """Kills up to `kills` times, spread over `seconds`, while the run goes on; describes the victims."""
        struck: list[str] = []
        begun_s = 0.0
        try:
            while len(struck) < kills and await self._until(self._is_whole_and_busy, "is whole and takes records"):
                begun_s = begun_s or time.monotonic()
                if time.monotonic() < begun_s + len(struck) * seconds / kills:
                    await asyncio.sleep(PAUSE_S)
                else:
                    struck.append(await self._kill(is_controller=len(struck) % 2 == 1))
        finally:
            await self._cluster.close()
        return struck

    async def _kill(self, *, is_controller: bool) -> str:
        topic = await self._topic()
        led = Counter(each.leader for each in topic.partitions)
        victim = (await self._admin.describe_quorum()).leader_id if is_controller else led.most_common(1)[0][0]
        who = f"{'the active controller' if is_controller else 'a leader'}, of {led[victim]} partitions"
        with self._standing_still(victim):
            await asyncio.sleep(STILL_S)
            self._nodes.kill(victim)
        self._say(f"killed node {victim}, {who}")

        async def is_led_by_others() -> bool:
            return all(each.leader in NODES and each.leader != victim for each in (await self._topic()).partitions)

        await self._until(is_led_by_others, f"is led without node {victim}")
        await asyncio.to_thread(self._nodes.start, victim)
        return who

    @contextmanager
    def _standing_still(self, victim: int) -> Iterator[None]:
        others = [each for each in NODES if each != victim]
        for each in others:
            self._nodes.send(each, signal.SIGSTOP)
        try:
            yield
        finally:
            for each in others:
                self._nodes.send(each, signal.SIGCONT)

    # --- observing

    async def _is_whole_and_busy(self) -> bool:
        topic = await self._topic()
        if any(len(each.isr) < len(NODES) or each.leader not in NODES for each in topic.partitions):
            return False
        places = [TopicPartition(topic.name, each.index) for each in topic.partitions]
        ends = await list_offsets(self._cluster, dict.fromkeys(places, Moment.LATEST), timeout_ms=ASK_MS)
        before, self._records = self._records, sum(each.offset for each in ends.values())
        return 0 < before < self._records

    async def _topic(self) -> Topic:
        """The topic of the run; ClientError while it does not exist."""
        found = [each for each in await self._admin.list_topics() if each.name.startswith(PREFIX)]
        if not found:
            raise ClientError("the topic is not there yet")
        return found[0]

    async def _until(self, question: Callable[[], Awaitable[bool]], what: str) -> bool:
        """Waits until a condition holds; False if the run ended first."""
        deadline_s = time.monotonic() + WAIT_S
        while not self._is_over():
            try:
                if await question():
                    return True
            except ClientError as error:
                what = f"{what.partition(' (')[0]} ({error})"
            if time.monotonic() > deadline_s:
                raise Broken(f"after {WAIT_S:.0f} s it is not so that the topic {what}")
            await asyncio.sleep(PAUSE_S)
        return False


# --- runs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """The output of a run, and the kills during it."""

    version: str
    command: str
    exit_code: int
    said: dict[str, Any]
    """The command's own JSON."""
    struck: list[str]

    @property
    def broken(self) -> dict[str, int]:
        """Violated rules, and how often."""
        return {each["kind"]: each["broken"] for each in self.said["rules"] if each["broken"]}


def run(
    nodes: Mortals,
    directory: Path,
    seconds: float,
    kills: int,
    *options: str,
    say: Callable[[str], None] = print,
) -> Outcome:
    """Runs the command on existing nodes, from its start to its end."""
    arguments = ("--seconds", f"{seconds:g}", *options, "-o", "json")
    out, err = directory / "verify.json", directory / "verify.err"
    with out.open("wb") as output, err.open("wb") as errors:
        process = subprocess.Popen(
            [*PENSTOCK, "verify", "-b", nodes.bootstrap, *arguments],
            env=ENVIRONMENT | {"TMPDIR": str(directory)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
        )
        try:
            struck = asyncio.run(Nemesis(nodes, lambda: process.poll() is not None, say).strike(kills, seconds))
            process.wait(seconds + END_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if not out.stat().st_size:
        raise Broken(f"penstock verify ended with {process.returncode}: {err.read_text()}")
    said = json.loads(out.read_text())
    return Outcome(nodes.version, f"penstock verify -b … {' '.join(arguments)}", process.returncode, said, struck)
