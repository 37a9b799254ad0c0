"""Requests built to cost the most, for every API and version, against a real node that measures itself.

    python -m tests.system.hostile_requests --record                        everything, an hour
    python -m tests.system.hostile_requests --apis FETCH --record           some rows anew
    python -m tests.system.hostile_requests --apis FETCH,METADATA --last    the last version of two APIs
    python -m tests.system.hostile_requests --only-siege --record           the last part anew, on a quiet machine

Each way in which a request can be made costly (`tests/costly.py`) is sent in four sizes: the largest that is decoded on
the loop, the largest that the budget allows, 15 MiB, and 95 MiB. Requests with meaningful names and numbers
(`tests/unit/server/large_requests.py`) are sent as large as the budget allows. The node's longest callback, the growth
of its memory and the size of the response are compared with their bounds. A measurement over its bound is repeated: a
busy machine only adds. Then ten connections send such requests at once, while other clients go on; rounds with and
without them alternate and their p99 is compared, because other work on the machine would hide the difference.
`--record` writes docs/results/budgets.md.
"""

import argparse
import datetime
import json
import os
import random
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.model.errors import ProtocolError, RequestTooCostly
from penstock.model.limits import DEFAULT_LIMITS, MIB
from penstock.records.builder import BatchBuilder
from penstock.server.connections.dispatch import Dispatch
from penstock.server.connections.serving import Route
from penstock.server.handlers.tables import BROKER_HANDLERS, BROKER_ONLY, CONTROLLER_HANDLERS
from penstock.wire.api import CONTROLLER_ONLY, Api, response_class
from penstock.wire.budget import Budget, request_budget
from penstock.wire.codec import decode, decode_request, encode
from penstock.wire.declare import Request, Response
from penstock.wire.headers import read_response_header, request_frame, request_header_version
from penstock.wire.hot.produce import read_produce
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.fetch import FetchRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.costly import Costly, costly
from tests.revision import revision
from tests.system.nodes import ROOT
from tests.unit.server.large_requests import TOPIC, arrays_of, widened

RESULTS: Final = ROOT / "docs" / "results"
STALL_MS_MAX: Final = 50.0
GROWTH_BYTES: Final = 16 * MIB
"""Allowed growth beyond twice the frame."""
TRIES: Final = 5
ANSWER_S: Final = 20.0
WAITS: Final = frozenset({Api.JOIN_GROUP, Api.CONSUMER_GROUP_HEARTBEAT, Api.FETCH})
"""APIs that may wait for an event: a response that does not come soon proves nothing."""
WAIT_S: Final = 3.0
SHRUNK: Final = 16
"""A budget is first tried at this fraction of its size: charges are proportional to elements."""
PRODUCERS: Final = 2_000
BATCH_PARTITIONS: Final = 96
CONNECTIONS: Final = 10
ROUNDS: Final = 6
ROUND_S: Final = 3.0
IDLE_SHARE: Final = 0.06
"""The most CPU share that an idle node takes."""
P99_TIMES_MAX: Final = 2.0
COSTLIEST: Final = 20
"""The number of requests, by each measure, that ten connections then send at once."""


class Sent(NamedTuple):
    """One request and its cost."""

    api: str
    version: int
    case: str
    frame_bytes: int
    answer_bytes: int
    """0 if the connection was closed, -1 if no response came in time."""
    stall_ms: float
    stall_cpu_ms: float
    grown_bytes: int
    cpu_ms: float
    where: str
    tries: int

    @property
    def faults(self) -> list[str]:
        """Bounds that were exceeded."""
        found = []
        if self.stall_ms > STALL_MS_MAX:
            found.append(f"the loop stood still for {self.stall_ms:.0f} ms ({self.stall_cpu_ms:.0f} of CPU)")
        if self.grown_bytes > 2 * self.frame_bytes + GROWTH_BYTES:
            found.append(f"memory grew by {self.grown_bytes / MIB:.1f} MiB")
        if self.answer_bytes > DEFAULT_LIMITS.response_bytes_max:
            found.append(f"the answer has {self.answer_bytes:,} bytes")
        return found

    def __str__(self) -> str:
        answer = {0: "refused", -1: "no answer yet"}.get(self.answer_bytes, f"answer {self.answer_bytes:,}")
        return (
            f"{self.api} v{self.version} {self.case}, frame {self.frame_bytes:,}: {answer}, "
            f"stall {self.stall_ms:.0f} ms ({self.stall_cpu_ms:.0f} CPU), memory +{self.grown_bytes / MIB:.1f} MiB"
        )


# --- the node ---------------------------------------------------------------------------------------------------------


class Client:
    """A connection that sends frames and reads responses."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, frame: bytes | bytearray) -> bool:
        """Whether the frame was sent; False if the node closed the connection meanwhile."""
        try:
            self.socket.sendall(frame)
        except ConnectionError:
            return False
        return True

    def receive(self, timeout_s: float) -> bytes | None:
        """The next response; None if the connection was closed. TimeoutError if there is none in time."""
        self.socket.settimeout(timeout_s)
        try:
            head = self._exactly(4)
            return self._exactly(struct.unpack(">i", head)[0])
        except (ConnectionError, EOFError):
            return None

    def ask(self, request: Request, version: int, timeout_s: float = 60.0) -> Response:
        api = Api(request.KEY)
        assert self.send(request_frame(request, version, 7, "harness"))
        frame = self.receive(timeout_s)
        assert frame is not None, f"the node closed the connection of {api.title}"
        _, position = read_response_header(api, version, memoryview(frame))
        return decode(response_class(api), version, memoryview(frame), position)

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, count: int) -> bytes:
        found = bytearray(count)
        view = memoryview(found)
        while view:
            received = self.socket.recv_into(view)
            if not received:
                raise EOFError
            view = view[received:]
        return bytes(found)


class Target:
    """A node that measures itself."""

    def __init__(self, process: "subprocess.Popen[str]", log_path: Path) -> None:
        self.process = process
        self._log_path = log_path
        addresses = self._line().split()
        self.address, self.controller_address = (
            (host, int(port)) for host, _, port in (each.rpartition(":") for each in addresses)
        )

    def begin(self) -> None:
        self._order("begin")
        assert self._line() == "ready"

    def end(self) -> dict[str, Any]:
        self._order("end")
        found: dict[str, Any] = json.loads(self._line())
        return found

    def until_idle(self) -> None:
        """Waits until earlier requests are processed, at most 15 s."""
        deadline_s, before_s = time.monotonic() + 15.0, -1.0
        while (taken_s := self._cpu_s()) - before_s > IDLE_SHARE / 2 and time.monotonic() < deadline_s:
            before_s = taken_s
            time.sleep(0.5)

    def _cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rest(self) -> None:
        """Stops measuring."""
        self._order("rest")

    def _order(self, order: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, f"the node is gone: {self._log_path.read_text()[-2000:]}"
        return line


@contextmanager
def a_target(directory: Path) -> Iterator[Target]:
    """Starts a node with a few topics, groups and producers."""
    log_path = directory / "log"
    with log_path.open("wb") as log:
        command = [sys.executable, "-m", "tests.system.hostile_node", str(directory / "data")]
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
    with process:
        try:
            target = Target(process, log_path)
            prepare(target)
            yield target
        finally:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()  # it has thousands of topics by now


def prepare(target: Target) -> None:
    """Creates the topics, group and producers that hostile requests name."""
    client = Client(target.address)
    topics = [
        CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=(), configs=()),
        CreatableTopic(
            name="batches", num_partitions=BATCH_PARTITIONS, replication_factor=1, assignments=(), configs=()
        ),
        *(
            CreatableTopic(name=f"small-{n}", num_partitions=2, replication_factor=1, assignments=(), configs=())
            for n in range(50)
        ),
    ]
    client.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=False), 7)
    for first in range(0, PRODUCERS, 100):
        for number in range(first, first + 100):
            builder = BatchBuilder(producer_id=10**9 + number, producer_epoch=0, base_sequence=0)
            builder.append(b"k", b"v", timestamp_ms=int(time.time() * 1000))
            client.send(request_frame(produced(TOPIC, [(0, builder.build())]), 9, number, "harness"))
        for _ in range(100):
            assert client.receive(30.0) is not None
    commit = OffsetCommitRequest(
        group_id=TOPIC,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                name=TOPIC,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="m")
                ],
            )
        ],
    )
    deadline_s = time.monotonic() + 30
    while True:
        response: Any = client.ask(commit, 8)
        if not response.topics[0].partitions[0].error_code or time.monotonic() > deadline_s:
            break
        time.sleep(0.1)
    client.close()


def produced(topic: str, batches: Sequence[tuple[int, bytes | bytearray]], acks: int = 1) -> ProduceRequest:
    parts = [PartitionProduceData(index=index, records=batch) for index, batch in batches]
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=parts)])


def topic_id_of(target: Target) -> bytes:
    client = Client(target.address)
    response: Any = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12)
    client.close()
    found: bytes = response.topics[0].topic_id
    return found


# --- the requests -----------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """One request to send."""

    route: Route
    version: int
    name: str
    is_for_controller: bool
    make: Callable[[], bytes]


def routes() -> dict[int, tuple[Route, bool]]:
    """All served routes, and whether each is served only on the controller listener."""
    broker = Dispatch(BROKER_HANDLERS, leaves_out=CONTROLLER_ONLY).routes
    controller = Dispatch(CONTROLLER_HANDLERS, leaves_out=BROKER_ONLY).routes
    return {key: (route, key not in broker) for key, route in (controller | broker).items()}


def cases_of(
    route: Route, version: int, *, is_for_controller: bool, topic_id: bytes, sizes: Sequence[int | None]
) -> Iterator[Case]:
    """All requests of an API in a version; a size of None means the largest that the budget allows."""
    for each in costly(route.request, version):
        for size in sizes if len(each.body(100_000)) != len(each.body(50_000)) else sizes[:1]:
            make = partial(each.body, size) if size is not None else partial(_largest, route, version, each)
            yield Case(route, version, each.name, is_for_controller, make)
    if route.api is Api.PRODUCE:
        yield from _real_batches(route, version)
        return
    for wide in arrays_of(route.request, version):
        for is_distinct in (False, True):
            name = f"{'.'.join(wide)}: {'distinct' if is_distinct else 'repeated'} with a meaning"
            make = partial(_meant, route, version, wide, topic_id, is_distinct=is_distinct)
            yield Case(route, version, name, is_for_controller, make)


def _largest(route: Route, version: int, case: Costly) -> bytes:
    return case.body(largest_within_budget(route, version, case))


def _meant(route: Route, version: int, wide: tuple[str, ...], topic_id: bytes, *, is_distinct: bool) -> bytes:
    count = _most_elements(route, version, wide, topic_id, is_distinct=is_distinct)
    request = widened(route.request, version, wide, count, topic_id, is_distinct=is_distinct)
    return bytes(encode(_harmless(request), version))


def _harmless(request: Request) -> Request:
    """Creates no topics or partitions by the thousand: cluster state is not a cost of the request."""
    if request.KEY in (Api.CREATE_TOPICS, Api.CREATE_PARTITIONS):
        request.validate_only = True  # type: ignore[attr-defined]
    return request


def _real_batches(route: Route, version: int) -> Iterator[Case]:
    """Records to many partitions, up to the maximum frame size."""
    builder = BatchBuilder()
    while builder.size_bytes < MIB - 2048:
        builder.append(b"k", bytes(1_000), timestamp_ms=int(time.time() * 1000))
    batch = builder.build()
    topic = "batches"
    if version >= 13:
        return
    for acks in (1, 0):
        request = produced(topic, [(n, batch) for n in range(BATCH_PARTITIONS)], acks)
        yield Case(route, version, f"real batches, acks={acks}", False, partial(_encoded, request, version))


def _encoded(request: Request, version: int) -> bytes:
    return bytes(encode(request, version))


def largest_within_budget(route: Route, version: int, case: Costly) -> int:
    """The size of the largest body that is not rejected as too costly."""
    limits = DEFAULT_LIMITS
    full = request_budget(limits)
    small = Budget(full.elements // SHRUNK, full.memory_bytes // SHRUNK)

    def fits(size: int) -> bool:
        body = case.body(size)
        try:
            if route.api is Api.PRODUCE:
                read_produce(version, memoryview(body), 0, limits.produce_partitions_max // SHRUNK)
            else:
                decode_request(route.request, version, body, 0, small)
        except RequestTooCostly:
            return False
        except ProtocolError:
            return True
        return True

    low, high = 64, limits.request_bytes_max // SHRUNK
    if fits(high):
        return (limits.frame_bytes_max if route.api is Api.PRODUCE else limits.request_bytes_max) - 64 * 1024
    while high - low > low // 50 + 16:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * SHRUNK


def _most_elements(route: Route, version: int, wide: tuple[str, ...], topic_id: bytes, *, is_distinct: bool) -> int:
    full = request_budget(DEFAULT_LIMITS)
    small = Budget(full.elements // SHRUNK, full.memory_bytes // SHRUNK)
    low, high = 1, small.elements
    while high - low > low // 50 + 4:
        middle = (low + high) // 2
        request = widened(route.request, version, wide, middle, topic_id, is_distinct=is_distinct)
        try:
            decode_request(route.request, version, encode(request, version), 0, small)
            low = middle
        except RequestTooCostly:
            high = middle
    return low * SHRUNK


def frame_of(case: Case) -> bytes:
    body = case.make()
    is_flexible = request_header_version(case.route.request, case.version) == 2
    head = struct.pack(">hhih", case.route.api, case.version, 7, 1) + b"x" + (b"\0" if is_flexible else b"")
    return b"".join((struct.pack(">i", len(head) + len(body)), head, body))


# --- measuring --------------------------------------------------------------------------------------------------------


def measure(target: Target, case: Case, frame: bytes, tries: int = TRIES) -> Sent:
    """The best of a few tries; stops at the first that is within all bounds."""
    best: Sent | None = None
    for number in range(1, tries + 1):
        sent = _send(target, case, frame, number)
        if best is not None:
            sent = sent._replace(
                stall_ms=min(sent.stall_ms, best.stall_ms),
                stall_cpu_ms=min(sent.stall_cpu_ms, best.stall_cpu_ms),
                grown_bytes=min(sent.grown_bytes, best.grown_bytes),
            )
        best = sent
        if not best.faults:
            break
        time.sleep(0.2 * number)
    assert best is not None
    return best


def _send(target: Target, case: Case, frame: bytes, number: int) -> Sent:
    client = Client(target.controller_address if case.is_for_controller else target.address)
    wait_s = WAIT_S if case.route.api in WAITS else ANSWER_S
    target.begin()
    answer: bytes | None = None
    answer_bytes = 0
    if client.send(frame):
        try:
            answer = client.receive(0.5 if case.name.endswith("acks=0") else wait_s)
            answer_bytes = 0 if answer is None else len(answer)
        except TimeoutError:
            answer_bytes = -1
    client.close()
    time.sleep(0.02)
    cost = target.end()
    return Sent(
        case.route.api.title,
        case.version,
        case.name,
        len(frame),
        answer_bytes,
        cost["stall_ms"],
        cost["stall_cpu_ms"],
        cost["grown_bytes"],
        cost["cpu_ms"],
        f"{cost['where']}, garbage collected in {cost['collection_ms']} ms",
        number,
    )


def costliest(sent: Sequence[tuple[Sent, bytes]]) -> list[tuple[Sent, bytes]]:
    """The requests with the most CPU time, the most memory and the longest stalls, and the largest ones."""
    by_cpu = sorted(sent, key=lambda each: -each[0].cpu_ms)[:COSTLIEST]
    by_memory = sorted(sent, key=lambda each: -each[0].grown_bytes)[: COSTLIEST // 2]
    by_stall = sorted(sent, key=lambda each: -each[0].stall_cpu_ms)[: COSTLIEST // 2]
    by_size = sorted(sent, key=lambda each: -len(each[1]))[:2]
    return list({id(each): each for each in (*by_cpu, *by_memory, *by_stall, *by_size)}.values())


# --- ten at once ------------------------------------------------------------------------------------------------------

HOSTILE = """
import os, socket, struct, sys, threading, time
os.nice(19)  # it stands for other machines: it takes the node's attention, not its processor
host, port, path, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
frames = [open(os.path.join(path, name), "rb").read() for name in sorted(os.listdir(path))]
go = threading.Event()
connections = set()
def siege(first):
    number = first
    while True:
        go.wait()
        frame = frames[number % len(frames)]
        number += 1
        try:
            with socket.create_connection((host, port), timeout=30) as connection:
                connections.add(connection)
                connection.sendall(frame)
                connection.settimeout(5)
                left = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL).ljust(4, b"\\0"))[0]
                while left > 0 and (data := connection.recv(min(left, 1 << 20))):
                    left -= len(data)
        except OSError:
            pass
        connections.discard(connection)
        time.sleep(0.01)
for number in range(count):
    threading.Thread(target=siege, args=(number * 7,), daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "go":
        go.set()
    else:
        go.clear()
        for connection in list(connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
    print("ok", flush=True)
"""

GOOD = """
import socket, struct, sys, time, gc
host, port, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
frames = [open(path + name, "rb").read() for name in ("produce", "fetch", "ping")]
connection = socket.create_connection((host, port))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
gc.disable()
def exactly(count):
    while count:
        count -= len(connection.recv(min(count, 1 << 16)))
print("ready", flush=True)
for line in sys.stdin:
    end, taken = time.perf_counter() + float(line), []
    while (began := time.perf_counter()) < end:
        for frame in frames:
            began = time.perf_counter()
            connection.sendall(frame)
            exactly(struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0])
            taken.append(time.perf_counter() - began)
        time.sleep(0.002)
    taken.sort()
    print(len(taken), taken[len(taken) // 2], taken[len(taken) * 99 // 100], taken[-1], flush=True)
"""


@dataclass(frozen=True, slots=True)
class Siege:
    """The effect of ten hostile clients on others: medians of rounds."""

    p99_alone_ms: float
    p99_besieged_ms: float
    median_alone_ms: float
    median_besieged_ms: float
    rounds: int

    @property
    def times(self) -> float:
        """The factor by which p99 grew."""
        return self.p99_besieged_ms / self.p99_alone_ms


def besiege(target: Target, frames: Sequence[bytes], directory: Path, rounds: int = ROUNDS) -> Siege:
    """Ten connections send these frames repeatedly; three clients produce, fetch and send ApiVersions meanwhile."""
    target.rest()
    place = directory / "frames"
    place.mkdir()
    for number, frame in enumerate(frames):
        (place / f"{number:04}").write_bytes(frame)
    builder = BatchBuilder()
    builder.append(b"k", bytes(1_000), timestamp_ms=int(time.time() * 1000))
    good = directory / "good-"
    produce = produced("small-1", [(0, builder.build())])
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, topics=(), session_epoch=-1)
    ping = ApiVersionsRequest(client_software_name="good", client_software_version="1")
    asked: list[tuple[str, Request, int]] = [("produce", produce, 9), ("fetch", fetch, 12), ("ping", ping, 3)]
    for name, request, version in asked:
        Path(f"{good}{name}").write_bytes(bytes(request_frame(request, version, 7, "good")))
    host, port = target.address
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    with ExitStack() as stack:
        hostile = _talker(stack, HOSTILE, host, str(port), str(place), str(CONNECTIONS))
        clients = [_talker(stack, GOOD, host, str(port), str(good)) for _ in range(3)]
        for number in range(2 * rounds):
            is_besieged = bool(number % 2)
            _say(hostile, "go" if is_besieged else "stop")
            time.sleep(0.5)
            if not is_besieged:
                target.until_idle()
            for client in clients:
                assert client.stdin is not None
                client.stdin.write(f"{ROUND_S}\n")
                client.stdin.flush()
            for client in clients:
                assert client.stdout is not None
                _, half, p99, _ = map(float, client.stdout.readline().split())
                found[is_besieged].append((half * 1000, p99 * 1000))

    def median(index: int, *, is_besieged: bool) -> float:
        return round(statistics.median(each[index] for each in found[is_besieged]), 3)

    return Siege(
        median(1, is_besieged=False),
        median(1, is_besieged=True),
        median(0, is_besieged=False),
        median(0, is_besieged=True),
        rounds,
    )


def _talker(stack: ExitStack, program: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", program, *arguments]
    process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    stack.callback(process.kill)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    return process


def _say(process: "subprocess.Popen[str]", order: str) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(order + "\n")
    process.stdin.flush()
    assert process.stdout.readline().strip() == "ok"


# --- results ----------------------------------------------------------------------------------------------------------


def say(sentence: str) -> None:
    print(f"{datetime.datetime.now():%H:%M:%S} {sentence}", flush=True)


SIZES: Final[tuple[int | None, ...]] = (60 * 1024, None, 15 * MIB, 95 * MIB)


class Found(NamedTuple):
    """Results of a run."""

    sent: list[Sent]
    costliest: list[Sent]
    siege: Siege | None


def run(arguments: argparse.Namespace, directory: Path) -> Found:
    chosen = [Api[name] for name in arguments.apis.split(",")] if arguments.apis else None
    dice = random.Random(arguments.seed)
    sent: list[Sent] = []
    with a_target(directory) as target:
        topic_id = topic_id_of(target)
        worst: list[tuple[Sent, bytes]] = []
        for route, is_for_controller in routes().values():
            if chosen is not None and route.api not in chosen:
                continue
            versions = [route.last] if arguments.last else range(route.first, route.last + 1)
            for version in versions:
                cases = cases_of(route, version, is_for_controller=is_for_controller, topic_id=topic_id, sizes=SIZES)
                for case in cases:
                    if dice.random() >= arguments.share:
                        continue
                    frame = frame_of(case)
                    one = measure(target, case, frame, arguments.tries)
                    sent.append(one)
                    if one.faults:
                        say(f"FAULT {one}: {'; '.join(one.faults)} {one.where}")
                    elif arguments.verbose:
                        say(str(one))
                    if not is_for_controller:
                        worst = costliest([*worst, (one, frame)])
            if sent:
                mine = [each for each in sent if each.api == route.api.title]
                say(
                    f"{route.api.title}: {len(mine)} requests, longest stall "
                    f"{max((each.stall_ms for each in mine), default=0):.0f} ms, most memory "
                    f"+{max((each.grown_bytes for each in mine), default=0) / MIB:.1f} MiB, "
                    f"{sum(bool(each.faults) for each in mine)} over a bound"
                )
        siege = None
        if not arguments.no_siege and worst:
            siege = besiege(target, [frame for _, frame in worst], directory)
    return Found(sent, [one for one, _ in worst], siege)


def siege_again(directory: Path) -> Siege:
    """Repeats the siege with the costliest requests of the last recorded run."""
    wanted = {
        (each["api"], each["version"], each["case"], each["frame_bytes"]) for each in recorded().get("costliest", ())
    }
    assert wanted, "there is no recorded run; record one first"
    with a_target(directory) as target:
        topic_id = topic_id_of(target)
        frames: list[bytes] = []
        for route, is_for_controller in routes().values():
            for version in sorted({version for api, version, _, _ in wanted if api == route.api.title}):
                for case in cases_of(
                    route, version, is_for_controller=is_for_controller, topic_id=topic_id, sizes=SIZES
                ):
                    frame = frame_of(case)
                    if (route.api.title, version, case.name, len(frame)) in wanted:
                        frames.append(frame)
        assert len(frames) >= len(wanted) - 2, "requests are made differently by now; record all anew"
        return besiege(target, frames, directory)


def recorded() -> dict[str, Any]:
    path = RESULTS / "budgets.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def record(found: Found, *, is_piece: bool) -> None:
    """Records a run; a run of some APIs replaces only their rows."""
    by_api: dict[str, list[Sent]] = {}
    for each in found.sent:
        by_api.setdefault(each.api, []).append(each)
    rows = {
        api: {
            "versions": f"{min(each.version for each in mine)}–{max(each.version for each in mine)}",
            "requests": len(mine),
            "refused": sum(each.answer_bytes == 0 for each in mine),
            "stall_ms": max(each.stall_ms for each in mine),
            "beyond_bytes": max(each.grown_bytes - 2 * each.frame_bytes for each in mine),
            "answer_bytes": max(each.answer_bytes for each in mine),
            "revision": revision(),
        }
        for api, mine in sorted(by_api.items())
    }
    kept = recorded() if is_piece else {}
    faults = [each for each in kept.get("faults", ()) if each["api"] not in rows]
    write(
        {
            "rows": dict(sorted({**kept.get("rows", {}), **rows}.items())),
            "faults": faults + [each._asdict() for each in found.sent if each.faults],
            "costliest": kept["costliest"] if kept else [each._asdict() for each in found.costliest],
            "siege": kept.get("siege") if found.siege is None else asdict(found.siege),
            "date": datetime.date.today().isoformat(),
        }
    )


def write(kept: dict[str, Any]) -> None:
    """Writes the page and its data."""
    rows = "\n".join(
        f"| {api} | {row['versions']} | {row['requests']:,} | {row['refused']:,} | {row['stall_ms']:.0f} "
        f"| {row['beyond_bytes'] / 1e6:.1f} | {row['answer_bytes']:,} | {row['revision']} |"
        for api, row in kept["rows"].items()
    )
    siege = None if kept["siege"] is None else Siege(**kept["siege"])
    text = f"""# Requests that are built to cost most

Every served API and version, every array and string of it, in sizes up to 95 MiB, against one node with topics, a group
and {PRODUCERS:,} producers. *Stall* is the longest callback of the node's event loop, less the time in which other
processes had its processor; {STALL_MS_MAX:.0f} ms are allowed. *Memory beyond* is the growth of the resident set at its
peak, less twice the frame; {GROWTH_BYTES / 1e6:.1f} MB are allowed. A measurement over a bound is repeated up to
{TRIES} times and the best counts: a busy machine only adds.

| API | Versions | Requests | Refused | Longest stall, ms | Memory beyond, MB | Largest answer, bytes | Revision |
|---|---|--:|--:|--:|--:|--:|---|
{rows}

Over a bound: {len(kept["faults"])} of {sum(row["requests"] for row in kept["rows"].values()):,}.
"""
    if siege is not None:
        text += f"""
Ten connections that send the costliest of them, again and again, while three clients produce, fetch and ask for
versions: p99 {siege.p99_besieged_ms:.2f} ms, without them {siege.p99_alone_ms:.2f} ms
({siege.times:.2f} times; {P99_TIMES_MAX:.0f} are allowed), medians of {siege.rounds} rounds of {ROUND_S:.0f} s each,
in turns.
"""
    text += f"""
`./dev campaign budgets` writes this page, `./dev campaign budgets --apis FETCH,METADATA` some rows of it;
{kept["date"]}, Python {sys.version.split()[0]}, 2 shared cores.
"""
    (RESULTS / "budgets.md").write_text(text)
    (RESULTS / "budgets.json").write_text(json.dumps(kept, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--apis", default="", help="names such as FETCH,METADATA")
    parser.add_argument("--last", action="store_true", help="only the last version of each")
    parser.add_argument("--share", type=float, default=1.0, help="of all requests, chosen by --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tries", type=int, default=TRIES)
    parser.add_argument("--no-siege", action="store_true")
    parser.add_argument("--only-siege", action="store_true", help="with the costliest requests of the recorded run")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = Found([], [], siege_again(Path(directory))) if arguments.only_siege else run(arguments, Path(directory))
    if arguments.record and not arguments.only_siege:
        record(found, is_piece=bool(arguments.apis))
    elif arguments.record and found.siege is not None:
        write(recorded() | {"siege": asdict(found.siege), "date": datetime.date.today().isoformat()})
    faults = sum(bool(each.faults) for each in found.sent)
    if not arguments.only_siege:
        say(f"{len(found.sent):,} requests, {faults} over a bound")
    if found.siege is not None:
        say(f"{found.siege} {found.siege.times:.2f} times")
    if faults or (found.siege is not None and found.siege.times > P99_TIMES_MAX):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
