"""The send path of Fetch: file slices through HostConnection over loopback, hot and cold.

Hot: against a bare loop of blocking `sendfile` calls, interleaved, into the same reader in another process. Cold: a
replay of a file that is not in the page cache, beside a ticker on the same loop: the lateness of the ticker with
read-ahead by workers, without it, and without a replay; the best of several rounds. It takes about a minute.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from penstock.host.files import HostDisk, HostFile
from penstock.host.sockets import HostConnection, HostNetwork
from penstock.host.workers import ThreadWorkers
from penstock.model.ports import Buffer, FileSlice

MIB = 1024 * 1024
ROUNDS = 80
ROUND_BYTES = 64 * MIB
HEADER = bytes(64)
RATIO_MIN = 0.8
COLD_BYTES = 512 * MIB
COLD_ROUNDS = 6
TICK_S = 0.001
TICKER_P99_MS_MAX = 5.0

SINK = """
import socket, struct, sys
ends = [socket.create_connection(("127.0.0.1", int(port))) for port in sys.argv[1:]]
buffer = bytearray(1 << 20)
control = sys.stdin.buffer
while order := control.read(9):  # which connection, and how much to read from it; then one byte says that it is here
    number, left = struct.unpack("<BQ", order)
    end = ends[number]
    while left:
        count = end.recv_into(buffer, min(left, len(buffer)))
        if count == 0:
            sys.exit("the sender is gone")
        left -= count
    end.sendall(b"!")
"""


class Sink:
    """A process that reads and discards data, so that the sender has a core of its own."""

    def __init__(self, *ports: int) -> None:
        command = [sys.executable, "-c", SINK, *map(str, ports)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)

    def expect(self, connection: int, size_bytes: int) -> None:
        """Tells the process to read this number of bytes from a connection."""
        assert self._process.stdin is not None
        self._process.stdin.write(bytes([connection]) + size_bytes.to_bytes(8, "little"))
        self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Best:
    """The best of many rounds, by wall time and by this thread's CPU time: noise only adds."""

    def __init__(self) -> None:
        self._wall_s = self._cpu_s = float("inf")
        self._started = 0.0, 0.0

    def __enter__(self) -> None:
        self._started = time.perf_counter(), time.thread_time()

    def __exit__(self, *_: object) -> None:
        self._wall_s = min(self._wall_s, time.perf_counter() - self._started[0])
        self._cpu_s = min(self._cpu_s, time.thread_time() - self._started[1])

    @property
    def gb_s(self) -> float:
        return ROUND_BYTES / self._wall_s / 1e9

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds per GB."""
        return self._cpu_s * 1000 / (ROUND_BYTES / 1e9)


async def round_of_ours(connection: HostConnection, sink: Sink, file: HostFile, slice_bytes: int, slices: int) -> None:
    """Sends one round of responses with several slices, each after a header, and waits until all has arrived."""
    answers = ROUND_BYTES // (slice_bytes * slices)
    sink.expect(0, answers * slices * (len(HEADER) + slice_bytes))
    for answer in range(answers):
        buffers: list[Buffer | FileSlice] = []
        for number in range(slices):
            position = (answer * slices + number) * slice_bytes
            buffers += [HEADER, FileSlice(file, position, slice_bytes)]
        await connection.send(buffers)
    await connection.receive_into(memoryview(bytearray(1)))


def round_of_bare(connection: socket.socket, sink: Sink, file: HostFile, slice_bytes: int) -> None:
    """Sends the same bytes by a minimal loop."""
    sink.expect(1, ROUND_BYTES // slice_bytes * (len(HEADER) + slice_bytes))
    out = connection.fileno()
    for start in range(0, ROUND_BYTES, slice_bytes):
        connection.send(HEADER, socket.MSG_MORE)
        position, end = start, start + slice_bytes
        while position < end:
            position += os.sendfile(out, file.fd, position, end - position)
    connection.recv(1)


class HotRow(NamedTuple):
    name: str
    ours_gb_s: float
    bare_gb_s: float
    ours_cpu_ms: float
    bare_cpu_ms: float
    ratio_min: float | None

    @property
    def ratio(self) -> float:
        return self.ours_gb_s / self.bare_gb_s

    def __str__(self) -> str:
        verdict = "" if self.ratio_min is None else f"  limit {self.ratio_min}  "
        if self.ratio_min is not None:
            verdict += "ok" if self.ratio >= self.ratio_min else "MISSED"
        return (
            f"{self.name:<30} {self.ours_gb_s:>6.2f} GB/s   bare sendfile: {self.bare_gb_s:>6.2f} GB/s"
            f"   ratio {self.ratio:>6.3f}{verdict}"
            f"   (sender's CPU per GB: {self.ours_cpu_ms:.0f} ms, bare {self.bare_cpu_ms:.0f} ms)"
        )


class ColdRow(NamedTuple):
    name: str
    ticker_p50_ms: float
    ticker_p99_ms: float
    ticker_max_ms: float
    mb_s: float
    limit_ms: float | None

    def __str__(self) -> str:
        verdict = "" if self.limit_ms is None else f"  limit {self.limit_ms:.2f} ms  "
        if self.limit_ms is not None:
            verdict += "ok" if self.ticker_p99_ms <= self.limit_ms else "MISSED"
        return (
            f"{self.name:<30} ticker late p50 {self.ticker_p50_ms:>6.2f}  p99 {self.ticker_p99_ms:>6.2f}"
            f"  max {self.ticker_max_ms:>6.2f} ms   {self.mb_s:>7.0f} MB/s{verdict}"
        )


async def hot(network: HostNetwork, disk: HostDisk) -> list[HotRow]:
    file = disk.open("hot", create=True)
    for position in range(0, ROUND_BYTES, MIB):
        file.write(position, os.urandom(MIB))
    listener = await network.listen("127.0.0.1", 0)
    bare_listener = socket.create_server(("127.0.0.1", 0))
    sink = Sink(int(listener.address.partition(":")[2]), bare_listener.getsockname()[1])
    connection = await listener.accept()
    bare, _ = bare_listener.accept()
    bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    rows = []
    for slice_bytes, slices, ratio_min in ((MIB, 1, RATIO_MIN), (MIB, 16, RATIO_MIN), (64 * 1024, 16, None)):
        ours, plain = Best(), Best()
        for _ in range(ROUNDS):
            with ours:
                await round_of_ours(connection, sink, file, slice_bytes, slices)
            with plain:
                round_of_bare(bare, sink, file, slice_bytes)
        name = f"hot, {slices} × {slice_bytes // 1024} KiB per send"
        rows.append(HotRow(name, ours.gb_s, plain.gb_s, ours.cpu_ms, plain.cpu_ms, ratio_min))
    connection.close()
    listener.close()
    bare.close()
    bare_listener.close()
    sink.close()
    file.close()
    disk.unlink("hot")
    return rows


async def tick(lateness_ms: list[float]) -> None:
    """Wakes every millisecond and records its lateness."""
    due_s = time.perf_counter() + TICK_S
    while True:
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        now_s = time.perf_counter()
        lateness_ms.append((now_s - due_s) * 1000)
        due_s = max(due_s + TICK_S, now_s)


async def watched(name: str, work: Awaitable[float]) -> ColdRow:
    lateness_ms: list[float] = []
    ticking = asyncio.create_task(tick(lateness_ms))
    try:
        mb_s = await work
    finally:
        ticking.cancel()
    p50_ms, p99_ms = part_of(lateness_ms, 0.5), part_of(lateness_ms, 0.99)
    return ColdRow(name, p50_ms, p99_ms, max(lateness_ms), mb_s, None)


async def replay(connection: HostConnection, sink: Sink, file: HostFile) -> float:
    """Sends a cold file from start to end, a MiB at a time; returns MB/s."""
    os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_DONTNEED)
    sink.expect(0, COLD_BYTES // MIB * (MIB + len(HEADER)))
    started_s = time.perf_counter()
    for position in range(0, COLD_BYTES, MIB):
        await connection.send([HEADER, FileSlice(file, position, MIB)])
    await connection.receive_into(memoryview(bytearray(1)))
    return COLD_BYTES / (time.perf_counter() - started_s) / 1e6


async def no_replay() -> float:
    await asyncio.sleep(1.5)
    return 0.0


@contextmanager
def without_read_ahead() -> Iterator[None]:
    """Treats every page as resident, which disables the read-ahead."""
    probe = HostFile.is_resident_at
    HostFile.is_resident_at = lambda *_: True  # type: ignore[method-assign]
    try:
        yield
    finally:
        HostFile.is_resident_at = probe  # type: ignore[method-assign]


async def cold(network: HostNetwork, disk: HostDisk) -> list[ColdRow]:
    file = disk.open("cold", create=True)
    for position in range(0, COLD_BYTES, MIB):
        file.write(position, os.urandom(MIB))
    await file.sync()
    listener = await network.listen("127.0.0.1", 0)
    sink = Sink(int(listener.address.partition(":")[2]))
    connection = await listener.accept()
    idle, ours, contrast = "no replay", "cold replay", "cold replay, read-ahead off"
    rounds: dict[str, list[ColdRow]] = {idle: [], ours: [], contrast: []}
    for _ in range(COLD_ROUNDS):
        rounds[idle].append(await watched(idle, no_replay()))
        rounds[ours].append(await watched(ours, replay(connection, sink, file)))
        with without_read_ahead():
            rounds[contrast].append(await watched(contrast, replay(connection, sink, file)))
    connection.close()
    listener.close()
    sink.close()
    file.close()
    disk.unlink("cold")
    rows = {name: min(found, key=lambda row: row.ticker_p99_ms) for name, found in rounds.items()}
    rows[ours] = rows[ours]._replace(limit_ms=rows[idle].ticker_p99_ms + TICKER_P99_MS_MAX)
    return list(rows.values())


def part_of(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


async def measure(directory: Path, which: str) -> None:
    workers = ThreadWorkers()
    disk = HostDisk(directory, workers)
    network = HostNetwork(workers)
    parts: dict[str, Callable[[HostNetwork, HostDisk], Awaitable[list[HotRow] | list[ColdRow]]]]
    parts = {"hot": hot, "cold": cold}
    for name, part in parts.items():
        if which in {name, "both"}:
            for row in await part(network, disk):
                print(json.dumps(row._asdict()) if "--json" in sys.argv else row, flush=True)
    disk.close()
    workers.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", nargs="?", choices=["hot", "cold", "both"], default="both")
    parser.add_argument("--directory", help="where the files go; it should be on a real device")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        asyncio.run(measure(Path(directory), arguments.which))
    assert threading.active_count() == 1


if __name__ == "__main__":
    main()
