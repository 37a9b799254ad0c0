"""The shared state of a node's world: the script drawn from the seed, the histories, and the expected state.

Clients record their requests and the outcomes in one of two histories. `strict` is for idempotent producers and the
topics that are created and deleted: nothing may be lost, duplicated or out of order. `loose` is for producers with
acks=1 or 0: a record may be there twice, and so out of order, but acknowledged records may not be lost either.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any, Final, Self

from penstock.client.cluster import Cluster
from penstock.client.connection.connection import BrokerConnection
from penstock.client.errors import ClientError, NotABroker
from penstock.client.ports import ClientPorts
from penstock.client.retry import Retry
from penstock.records.compression import Codec
from penstock.simulator.lane import LANE, Gate
from penstock.simulator.node import Ports
from penstock.simulator.options import FaultOptions
from penstock.simulator.world import World
from penstock.verify.check import check
from penstock.verify.findings import Kind
from penstock.verify.history import Event
from penstock.verify.recorder import Recorder
from penstock.verify.report import Report
from penstock.verify.rules import Rules
from penstock.wire.declare import Request
from penstock.wire.messages.create_partitions import CreatePartitionsRequest
from penstock.wire.messages.create_topics import CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest
from penstock.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

NODE: Final = "node"
PORT: Final = 9092
STRICT: Final = "orders"
LOOSE: Final = "hints"
FLEETING: Final = "fleeting"
SEGMENT_BYTES: Final = "internal.segment.bytes"

CHANGES: Final = (CreateTopicsRequest, CreatePartitionsRequest, DeleteTopicsRequest, IncrementalAlterConfigsRequest)
"""Requests that change the cluster."""

MAY_DOUBLE: Final = frozenset({Kind.DUPLICATE, Kind.INT_NONMONOTONIC_SEND, Kind.NONMONOTONIC_SEND, Kind.REALTIME_ORDER})
"""What may happen to a producer that is not idempotent when a response is lost."""


class Broken(AssertionError):
    """An invariant does not hold."""


class Script:
    """The parameters that a seed draws for its world, apart from the faults."""

    def __init__(self, random: Random) -> None:
        def maybe(chance: float, low: float, high: float) -> float:
            strength = random.uniform(low, high)
            return strength if random.random() < chance else 0.0

        self.options = FaultOptions(
            delay_s_mean=random.choice((0.0002, 0.001, 0.005)),
            loss=maybe(0.3, 0.0, 0.05),
            straggler=maybe(0.3, 0.0, 0.02),
            straggler_s_max=random.uniform(0.2, 2.0),
            fragment=maybe(0.3, 0.0, 0.4),
            bytes_per_s=maybe(0.3, 50_000.0, 1_000_000.0),
            window_bytes=random.choice((4_096, 65_536)),
            sync_s_mean=random.choice((0.0002, 0.001, 0.005)),
            slow_sync=maybe(0.3, 0.0, 0.05),
            slow_sync_s_max=random.uniform(0.05, 0.5),
            disk_is_torn=random.random() < 0.7,
        )
        self.give_up_s = random.choice((1.5, 3.0, 20.0))
        self.strict_partitions = random.choice((1, 2, 2, 3))
        self.loose_partitions = random.choice((1, 2))
        self.strict_segment_bytes = random.choice((600, 2_000, 8_000, 1 << 20))
        self.loose_segment_bytes = random.choice((600, 2_000))
        self.loose_retention_bytes = random.choice((-1, 1_000, 6_000))
        self.ledger_bytes = random.choice((600, 2_000, 16_000))
        self.reserve_bytes = random.choice((0, 1_000, 10_000))
        self.retention_ms = random.choice((700, 2_000))
        self.pass_ms = random.choice((60, 300, 1_000))
        self.stop_ms = random.choice((0, 200, 2_000))
        self.request_timeout_ms = random.choice((400, 800, 1_500))
        self.codec = random.choice((Codec.NONE, Codec.NONE, Codec.LZ4, Codec.GZIP))
        self.has_gardener = random.random() < 0.75
        self.has_session_reader = random.random() < 0.6
        self.patience_s = random.uniform(0.02, 0.5)
        """The delay after which the operator restarts a node with a log that is offline."""
        self.ends_with = random.choice(("power cut", "power cut", "kill", "clean stop"))


class CountingRetry(Retry):
    """Counts repeated requests for its cluster."""

    def __init__(self, cluster: "PatientCluster", timeout_ms: int) -> None:
        super().__init__(cluster.ports.clock, cluster.ports.entropy, timeout_ms)
        self._cluster = cluster

    async def after(self, error: ClientError) -> None:
        self._cluster.repetitions += 1
        await super().after(error)


class PatientCluster(Cluster):
    """A cluster that counts repeated requests and keeps a list of its connections."""

    def __init__(self, address: str, on_answer: Callable[[], None], **options: Any) -> None:
        """`on_answer` is called when a change of the cluster is acknowledged."""
        super().__init__(address, **options)
        self.repetitions = 0
        self.opened: dict[BrokerConnection, None] = {}
        self._on_answer = on_answer

    async def ask_checked(self, request: Request, *arguments: Any, **options: Any) -> Any:
        answer = await super().ask_checked(request, *arguments, **options)
        if isinstance(request, CHANGES):
            self._on_answer()
        return answer

    async def connection(self, node_id: int, lane: str = "") -> BrokerConnection:
        return self._noted(await super().connection(node_id, lane))

    async def any_connection(self, lane: str = "") -> BrokerConnection:
        return self._noted(await super().any_connection(lane))

    def _noted(self, connection: BrokerConnection) -> BrokerConnection:
        self.opened[connection] = None
        return connection

    def nonsense(self) -> list[str]:
        """Responses of the node that the client could not parse."""
        failures = [connection._failure for connection in self.opened]
        return [str(failure) for failure in failures if isinstance(failure, NotABroker)]

    def retry(self, timeout_ms: int | None = None) -> Retry:
        return CountingRetry(self, self.timeout_ms if timeout_ms is None else timeout_ms)


@dataclass(slots=True)
class KnownTopic:
    """A topic that is known to exist."""

    partitions: int
    configs: dict[str, str] = field(default_factory=dict)


class Book:
    """One history, and the number of records acknowledged to its producers."""

    def __init__(self, time_s: Callable[[], float]) -> None:
        self.events: list[Event] = []
        self.recorder = Recorder.in_memory(lambda: int(time_s() * 1e9), self.events.append)
        self.acknowledged = 0


class WorldState:
    """See the module."""

    def __init__(self, world: World, script: Script) -> None:
        self.world = world
        self.script = script
        time_s = world.loop.time
        self._began_s = time_s()
        self.strict = Book(time_s)
        self.loose = Book(time_s)
        self.counts: Counter[str] = Counter()
        """The number of events, by kind."""
        self.timeline: list[str] = []
        self.trouble: list[str] = []
        """Log messages of the node that show a bug."""
        self.topics: dict[str, KnownTopic] = {}
        self.unsure: dict[str, None] = {}
        """Topics that may or may not exist."""
        self.cut_asked: dict[str | int, int] = {}
        """The offset up to which deletion of records was requested, whether or not it was done."""
        self.cut_done: dict[str, int] = {}
        self.loose_starts: dict[str | int, int] = {}
        self.is_calm = False
        self.clusters: list[PatientCluster] = []
        self.ambush: Callable[[str], None] | None = None
        """Called when a client receives an acknowledgement."""
        self.ends: dict[str, int] | None = None
        """At the very end: the end of each partition of the two topics, up to which readers must read."""
        self.finished: dict[str, None] = {}
        """Clients that are done."""
        self.progress = asyncio.Event()

    # --- the timeline

    @property
    def time_s(self) -> float:
        """Virtual seconds since the world began."""
        return self.world.loop.time() - self._began_s

    def tell(self, who: str, what: str) -> None:
        """Adds a line to the timeline, and to the trace."""
        self.timeline.append(f"{self.time_s:9.4f}  {who:<11} {what}")
        self.world.note("told", who, what)

    def count(self, kind: str, who: str, what: str = "") -> None:
        """Adds an event to the timeline, and counts it."""
        self.counts[kind] += 1
        self.tell(who, f"{kind}{': ' if what else ''}{what}")

    # --- clients

    def cluster(self, ports: Ports) -> PatientCluster:
        """The cluster for the client with these ports."""
        cluster = PatientCluster(
            f"{NODE}:{PORT}",
            lambda: self.hear(ports.name),
            ports=ClientPorts(ports.network, ports.clock, ports.entropy),
            client_id=ports.name,
            connect_timeout_ms=1_200,
            request_timeout_ms=self.script.request_timeout_ms,
            timeout_ms=60_000,
        )
        self.clusters.append(cluster)
        return cluster

    def hear(self, name: str) -> None:
        """A client received an acknowledgement: a good moment for a power cut."""
        if self.ambush is not None:
            self.ambush(name)

    def finish(self, name: str) -> None:
        """Marks a client as done."""
        self.finished[name] = None
        self.progress.set()

    async def until_finished(self, names: list[str]) -> None:
        """Waits until these clients are done."""
        while not all(name in self.finished for name in names):
            self.progress.clear()
            await self.progress.wait()

    # --- checks

    def reports(self) -> tuple[Report, Report]:
        """The reports of `verify` on the two histories."""
        strict = check(self.strict.events, Rules(log_starts=self.cut_asked))
        loose = check(self.loose.events, Rules(waived=MAY_DOUBLE, log_starts=self.loose_starts))
        return strict, loose


class Ears(logging.Handler):
    """Collects the node's log messages; one with a traceback is a bug of ours."""

    def __init__(self, state: WorldState) -> None:
        super().__init__(logging.WARNING)
        self._state = state
        self._logger = logging.getLogger("penstock")

    def emit(self, record: logging.LogRecord) -> None:
        lane = LANE.get(None)
        if lane is not None and lane.gate is Gate.ENDED:
            return  # left over from a killed process
        sentence = record.getMessage()
        self._state.tell(NODE, f"says: {sentence}")
        if record.exc_info and record.exc_info[1] is not None:
            self._state.trouble.append(f"{sentence} ({record.exc_info[1]!r})")

    def __enter__(self) -> Self:
        self._before = self._logger.propagate, self._logger.level
        self._logger.propagate = False
        self._logger.setLevel(logging.WARNING)
        self._logger.addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate, level = self._before
        self._logger.setLevel(level)
