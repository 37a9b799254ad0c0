"""Connections over loopback: bytes and file slices arrive in order, and every kind of end releases the files."""

import asyncio
import errno
import os
import socket
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from penstock.host import sockets
from penstock.host.files import HostDisk, HostFile
from penstock.host.memory import MemoryDisk
from penstock.host.sockets import HostConnection, HostNetwork
from penstock.host.workers import ThreadWorkers
from penstock.model.ports import Buffer, Disk, FileSlice
from tests.unit.host.drive import refused

MIB = 1024 * 1024


class Pair:
    """Two connected ends, and a disk that counts its open files."""

    def __init__(self, network: HostNetwork, disk: HostDisk, one: HostConnection, two: HostConnection) -> None:
        self.network = network
        self.disk = disk
        self.one = one
        self.two = two

    async def received(self, size_bytes: int) -> bytes:
        """Receives that many bytes at the second end, or fewer if the connection ended."""
        content = bytearray(size_bytes)
        done = 0
        while done < size_bytes:
            count = await self.two.receive_into(memoryview(content)[done:])
            if count == 0:
                break
            done += count
        return bytes(content[:done])

    def slice_of(self, content: bytes, position: int = 0, *, disk: Disk | None = None) -> FileSlice:
        """Returns a slice from a position to the end; the file is closed, so that only the slice holds it."""
        disk = disk or self.disk
        file = disk.open("file", create=True)
        file.truncate(0)
        file.write(0, content)
        part = FileSlice(file, position, len(content) - position)
        file.close()
        disk.unlink("file")
        return part


@asynccontextmanager
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    workers = ThreadWorkers()
    disk = HostDisk(tmp_path, workers)
    network = HostNetwork(workers)
    listener = await network.listen("127.0.0.1", 0)
    host, port = listener.address.split(":")
    one, two = await asyncio.gather(network.connect(host, int(port)), listener.accept())
    assert (one.peer, one.local) == (two.local, two.peer) == (listener.address, two.peer)
    listener.close()
    try:
        yield Pair(network, disk, one, two)
    finally:
        one.close()
        two.close()
        for _ in range(1000):
            if not disk.open_count:
                break
            await asyncio.sleep(0.001)
        assert disk.open_count == 0, "a slice was not released"
        disk.close()
        workers.close()


def run(tmp_path: Path, story: Callable[[Pair], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(60), pair(tmp_path) as ends:
            await story(ends)

    asyncio.run(whole())


def test_bytes_go_and_come_back(tmp_path: Path) -> None:
    async def story(ends: Pair) -> None:
        for number in range(200):
            message = b"%d" % number
            await ends.one.send([message[:1], bytearray(message[1:]), b"", memoryview(b"!")])
            assert await ends.received(len(message) + 1) == message + b"!"
            await ends.two.send([message])
            buffer = bytearray(100)
            assert await ends.one.receive_into(memoryview(buffer)) == len(message)
        await ends.one.send([])
        await ends.one.send([b""])
        ends.one.close()
        assert await ends.two.receive_into(memoryview(bytearray(1))) == 0

    run(tmp_path, story)


@pytest.mark.parametrize("kind", ["host", "cold host", "memory"])
def test_big_transfers_of_buffers_and_slices_arrive_in_order(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "cold host":
        monkeypatch.setattr(HostFile, "is_resident_at", lambda *_: False)

    async def story(ends: Pair) -> None:
        random = Random(1)
        disk = MemoryDisk() if kind == "memory" else ends.disk
        for _ in range(6):
            buffers: list[Buffer | FileSlice] = []
            expected = []
            for _ in range(random.choice((1, 20, 3000))):
                content = random.randbytes(random.choice((0, 1, 100, 5000)))
                buffers.append(content)
                expected.append(content)
            for size_bytes in (1, 100, 3 * MIB, 1 * MIB + 17, 0):
                content = random.randbytes(size_bytes + 13)
                buffers += [b"header", ends.slice_of(content, 13, disk=disk), ends.slice_of(content, 0, disk=disk)]
                expected += [b"header", content[13:], content]
            buffers.append(random.randbytes(5 * MIB))
            expected.append(bytes(buffers[-1]))  # type: ignore[arg-type]
            whole = b"".join(expected)
            _, got = await asyncio.gather(ends.one.send(buffers), ends.received(len(whole)))
            assert got == whole
            assert disk.open_count == 0

    run(tmp_path, story)


@pytest.mark.parametrize("is_host", [True, False])
def test_a_file_shorter_than_promised_ends_the_connection(tmp_path: Path, is_host: bool) -> None:
    async def story(ends: Pair) -> None:
        disk = ends.disk if is_host else MemoryDisk()
        whole = ends.slice_of(b"abc", disk=disk)
        part = FileSlice(whole.file, 1, 100)
        with pytest.raises(ConnectionError, match="shorter"):
            await ends.one.send([whole, part])
        assert await ends.received(100) in {b"abcbc", b"abc"}
        assert disk.open_count == 0
        with pytest.raises(ConnectionError):
            await ends.one.send([b"more"])

    run(tmp_path, story)


def test_a_reset_by_the_peer_breaks_both_directions(tmp_path: Path) -> None:
    async def story(ends: Pair) -> None:
        linger = struct.pack("ii", 1, 0)
        ends.two._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        receiving = asyncio.create_task(ends.one.receive_into(memoryview(bytearray(1))))
        await asyncio.sleep(0.01)
        ends.two.close()
        with pytest.raises(ConnectionError):
            await receiving
        part = ends.slice_of(b"x" * MIB)
        with pytest.raises(ConnectionError):
            await ends.one.send([b"y" * MIB, part])
        assert ends.disk.open_count == 0

    run(tmp_path, story)


def test_a_cancelled_send_releases_its_slices_and_ends_the_connection(tmp_path: Path) -> None:
    async def story(ends: Pair) -> None:
        parts = [ends.slice_of(b"x" * 16 * MIB) for _ in range(3)]
        sending = asyncio.create_task(ends.one.send([b"header", *parts]))
        await asyncio.sleep(0.05)
        assert not sending.done(), "nobody reads"
        assert ends.disk.open_count > 0
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert ends.disk.open_count == 0
        with pytest.raises(ConnectionError):
            await ends.one.send([b"more"])
        assert len(await ends.received(100 * MIB)) < 48 * MIB

    run(tmp_path, story)


def test_a_send_cancelled_while_a_worker_reads_keeps_the_file_until_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, go = threading.Event(), threading.Event()
    sizes = []

    def slow(fd: int, *_: object) -> None:
        started.set()
        go.wait()
        sizes.append(os.fstat(fd).st_size)

    monkeypatch.setattr(HostFile, "is_resident_at", lambda *_: False)
    monkeypatch.setattr(os, "posix_fadvise", slow)

    async def story(ends: Pair) -> None:
        sending = asyncio.create_task(ends.one.send([ends.slice_of(b"x" * 100)]))
        while not started.is_set():
            await asyncio.sleep(0.001)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert ends.disk.open_count == 1
        go.set()
        while ends.disk.open_count:
            await asyncio.sleep(0.001)
        assert sizes == [100]

    run(tmp_path, story)


def test_a_cancelled_receive_loses_nothing(tmp_path: Path) -> None:
    async def story(ends: Pair) -> None:
        receiving = asyncio.create_task(ends.two.receive_into(memoryview(bytearray(10))))
        await asyncio.sleep(0)
        receiving.cancel()
        with suppress(asyncio.CancelledError):
            await receiving
        await ends.one.send([b"abc"])
        await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        assert await ends.received(3) == b"abc"
        later = asyncio.create_task(ends.received(3))
        await asyncio.sleep(0.01)
        await ends.one.send([b"def"])
        assert await later == b"def"

    run(tmp_path, story)


def test_nobody_is_woken_for_bytes_that_nobody_wants_yet(tmp_path: Path) -> None:
    async def story(ends: Pair) -> None:
        selector = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
        await ends.one.send([b"abc"])
        assert await ends.received(3) == b"abc"
        waiting = asyncio.create_task(ends.received(3))
        await asyncio.sleep(0.01)
        await ends.one.send([b"defghi"])
        assert await waiting == b"def"
        turns = 0
        select = selector.select

        def counted(timeout: float | None) -> object:
            nonlocal turns
            turns += 1
            return select(timeout)

        selector.select = counted
        await asyncio.sleep(0.1)
        selector.select = select
        assert turns < 10
        assert await ends.received(3) == b"ghi"

    run(tmp_path, story)


def test_close_wakes_whoever_waits(tmp_path: Path) -> None:
    async def story(ends: Pair) -> None:
        receiving = asyncio.create_task(ends.one.receive_into(memoryview(bytearray(10))))
        sending = asyncio.create_task(ends.one.send([ends.slice_of(b"x" * 32 * MIB)]))
        await asyncio.sleep(0.05)
        ends.one.close()
        ends.one.close()
        for task in (receiving, sending):
            with pytest.raises(ConnectionError):
                await task
        with pytest.raises(ConnectionError):
            await ends.one.receive_into(memoryview(bytearray(10)))

    run(tmp_path, story)


@pytest.mark.parametrize("slice_bytes", [64 * MIB, MIB])
def test_a_fast_reader_does_not_starve_the_loop(
    tmp_path: Path, slice_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel accepts everything at once here; the loop still runs other tasks in between."""
    monkeypatch.setattr(os, "sendfile", lambda out, fd, position, size: size)

    async def story(ends: Pair) -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await ends.one.send([ends.slice_of(bytes(slice_bytes)) for _ in range(64 * MIB // slice_bytes)])
        counting.cancel()
        assert turns >= 64 * MIB // sockets.TURN_BYTES - 1  # no turn follows the last piece

    run(tmp_path, story)


def test_listeners() -> None:
    async def story() -> None:
        workers = ThreadWorkers()
        network = HostNetwork(workers)
        listener = await network.listen("localhost", 0)
        port = int(listener.address.rpartition(":")[2])
        with refused(errno.EADDRINUSE):
            await network.listen(listener.address.rpartition(":")[0].strip("[]"), port)
        clients = [await network.connect("localhost", port) for _ in range(5)]
        servers = [await listener.accept() for _ in range(5)]
        assert [server.peer for server in servers] == [client.local for client in clients]
        accepting = asyncio.create_task(listener.accept())
        await asyncio.sleep(0.01)
        listener.close()
        listener.close()
        with refused(errno.EBADF):
            await accepting
        with refused(errno.EBADF):
            await listener.accept()
        for connection in (*clients, *servers):
            connection.close()
        with refused(errno.ECONNREFUSED):
            await network.connect("localhost", port)
        workers.close()

    asyncio.run(story())


def test_an_accept_can_be_cancelled_and_repeated() -> None:
    async def story() -> None:
        workers = ThreadWorkers()
        network = HostNetwork(workers)
        listener = await network.listen("127.0.0.1", 0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(listener.accept(), 0.01)
        port = int(listener.address.partition(":")[2])
        client, server = await asyncio.gather(network.connect("127.0.0.1", port), listener.accept())
        for end in (client, server, listener):
            end.close()
        workers.close()

    asyncio.run(story())


def test_addresses_have_brackets_when_they_need_them() -> None:
    async def story() -> None:
        workers = ThreadWorkers()
        network = HostNetwork(workers)
        try:
            listener = await network.listen("::1", 0)
        except OSError:
            pytest.skip("no IPv6 here")
        finally:
            workers.close()
        assert listener.address.startswith("[::1]:")
        listener.close()

    asyncio.run(story())


def test_many_connections_at_once() -> None:
    async def story() -> None:
        workers = ThreadWorkers()
        network = HostNetwork(workers)
        listener = await network.listen("127.0.0.1", 0)
        port = int(listener.address.partition(":")[2])

        async def serve(served: HostConnection) -> None:
            buffer = bytearray(64)
            while count := await served.receive_into(memoryview(buffer)):
                await served.send([buffer[:count]])
            served.close()

        async def accept() -> None:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(50):
                    tasks.create_task(serve(await listener.accept()))

        async def ask(number: int) -> None:
            client = await network.connect("127.0.0.1", port)
            for turn in range(20):
                message = b"%d-%d" % (number, turn)
                await client.send([message])
                buffer = bytearray(len(message))
                done = 0
                while done < len(message):
                    done += await client.receive_into(memoryview(buffer)[done:])
                assert buffer == message
            client.close()

        await asyncio.gather(accept(), *(ask(number) for number in range(50)))
        listener.close()
        workers.close()

    asyncio.run(story())
