"""A toy service that tests the simulator: a set of numbers on a majority of nodes.

A client adds a number at any node and retries elsewhere until a node acknowledges it. A node appends it to its file,
syncs, has its peers do the same, and acknowledges when a majority has it. Invariant: every acknowledged number is on a
majority of disks.
"""

import asyncio
import struct
import zlib
from collections import Counter
from typing import NamedTuple

from penstock.model.ports import Connection, File, Listener
from penstock.simulator.nemesis import Nemesis
from penstock.simulator.node import Ports
from penstock.simulator.options import FaultOptions, draw_options
from penstock.simulator.randomness import Streams
from penstock.simulator.world import World

PORT = 9000
ADD, COPY, YES, NO = range(4)
ROW = struct.Struct(">BII")


async def exchange(connection: Connection, kind: int, number: int) -> int:
    await connection.send([pack(kind, number)])
    frame = await receive(connection)
    return NO if frame is None else frame[0]


async def receive(connection: Connection) -> tuple[int, int] | None:
    buffer = bytearray(ROW.size)
    size = 0
    while size < len(buffer):
        count = await connection.receive_into(memoryview(buffer)[size:])
        if not count:
            return None
        size += count
    return unpack(buffer)


def pack(kind: int, number: int) -> bytes:
    return ROW.pack(kind, number, zlib.crc32(b"%d %d" % (kind, number)))


def unpack(row: bytes | bytearray) -> tuple[int, int] | None:
    kind, number, check = ROW.unpack(row)
    return (kind, number) if check == zlib.crc32(b"%d %d" % (kind, number)) else None


class Replica:
    """One node."""

    def __init__(self, ports: Ports, peers: list[str], *, is_careless: bool) -> None:
        self.ports = ports
        self.is_careless = is_careless
        self.peers = peers
        self.numbers: dict[int, None] = {}
        self.connections: dict[str, Connection] = {}
        self.locks = {peer: asyncio.Lock() for peer in peers}
        self.append_lock = asyncio.Lock()
        self.tasks: list[asyncio.Task[None]] = []
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def recover(self) -> None:
        """Rewrites the readable log: after a failed sync, data that can be read need not be on the disk."""
        disk = self.ports.disk
        self.numbers = read_numbers(disk.open("log", create=True))
        fresh = disk.open("log.new", create=True)
        fresh.truncate(0)
        fresh.write(0, b"".join(pack(ADD, number) for number in self.numbers))
        await fresh.sync()
        disk.rename("log.new", "log")
        await disk.sync_dir("")
        self.file = fresh

    async def run(self) -> None:
        await self.recover()
        listener = await self.ports.network.listen("", PORT)
        accepting = asyncio.create_task(self.accept(listener))
        await self.failure
        accepting.cancel()

    async def accept(self, listener: Listener) -> None:
        while True:
            connection = await listener.accept()
            self.tasks = [task for task in self.tasks if not task.done()]
            self.tasks.append(asyncio.create_task(self.serve(connection)))

    async def serve(self, connection: Connection) -> None:
        try:
            while (frame := await receive(connection)) is not None:
                kind, number = frame
                await self.append(number)
                has_majority = kind == COPY or await self.copy_to_majority(number)
                await connection.send([pack(YES if has_majority else NO, number)])
        except ConnectionError:
            pass
        except OSError as error:  # the disk failed: this program must not go on
            if not self.failure.done():
                self.failure.set_exception(error)
        finally:
            connection.close()

    async def append(self, number: int) -> None:
        async with self.append_lock:
            if number not in self.numbers:
                self.file.write(ROW.size * len(self.numbers), pack(ADD, number))
                if not self.is_careless:
                    await self.file.sync()
                self.numbers[number] = None

    async def copy_to_majority(self, number: int) -> bool:
        answers = await asyncio.gather(*(self.copy(peer, number) for peer in self.peers))
        return sum(answers) + 1 > (len(self.peers) + 1) // 2

    async def copy(self, peer: str, number: int) -> bool:
        async with self.locks[peer]:
            try:
                async with asyncio.timeout(0.5):
                    if peer not in self.connections:
                        self.connections[peer] = await self.ports.network.connect(peer, PORT)
                    return await exchange(self.connections[peer], COPY, number) == YES
            except OSError:  # TimeoutError is one
                if peer in self.connections:
                    self.connections.pop(peer).close()
                return False


def read_numbers(file: File) -> dict[int, None]:
    numbers: dict[int, None] = {}
    content = file.read(0, file.size())
    for position in range(0, len(content) - ROW.size + 1, ROW.size):
        frame = unpack(content[position : position + ROW.size])
        if frame is None:
            break
        numbers[frame[1]] = None
    return numbers


class Toy:
    """The service, its clients, and the numbers that were acknowledged to them."""

    def __init__(self, world: World, *, nodes: int, clients: int, adds: int, is_careless: bool = False) -> None:
        self.world = world
        self.is_careless = is_careless
        """The planted fault: nodes do not sync."""
        self.names = [f"node-{index}" for index in range(nodes)]
        self.clients = [f"client-{index}" for index in range(clients)]
        self.adds = adds
        self.acknowledged: list[int] = []
        for name in self.names:
            world.add(name, self.replica, tolerates=(OSError,))
        for client in self.clients:
            world.add(client, self.client)
        for name in [*self.names, *self.clients]:
            world.start(name)

    async def replica(self, ports: Ports) -> None:
        peers = [name for name in self.names if name != ports.name]
        await Replica(ports, peers, is_careless=self.is_careless).run()

    async def client(self, ports: Ports) -> None:
        first = (self.clients.index(ports.name) + 1) * 1_000
        for number in range(first, first + self.adds):
            while not await self.add(ports, number):
                await asyncio.sleep(0.05)
            self.acknowledged.append(number)
            await asyncio.sleep(ports.entropy.below(1000) / 1000)

    async def add(self, ports: Ports, number: int) -> bool:
        name = self.names[ports.entropy.below(len(self.names))]
        connection = None
        try:
            async with asyncio.timeout(1.0):
                connection = await ports.network.connect(name, PORT)
                answer = await exchange(connection, ADD, number)
        except OSError:
            return False
        finally:
            if connection is not None:
                connection.close()
        self.world.note("answer", ports.name, number, answer, ports.clock.wall_ms(), ports.clock.monotonic_ms())
        return answer == YES

    def lost(self) -> list[int]:
        """Acknowledged numbers that are not on a majority of disks."""
        copies: Counter[int] = Counter()
        for name in self.names:
            disk = self.world.nodes[name].disk
            disk.faults.read_error = 0.0
            disk.faults.open_error = 0.0
            if disk.exists("log"):
                copies.update(list(read_numbers(disk.open("log"))))
        return [number for number in self.acknowledged if copies[number] <= len(self.names) // 2]


class Lost(AssertionError):
    """The invariant was violated."""


class Run(NamedTuple):
    """The result of a world."""

    trace_hash: str
    events: int
    faults: int
    acknowledged: int
    rows: list[str] | None


def run_seed(seed: int, *, virtual_s: float = 8.0, is_careless: bool = False, keeps_trace: bool = False) -> Run:
    """Runs one world: the seed draws its faults; at the end all nodes lose power and the disks are checked."""
    random = Streams(seed).stream("toy")
    options: FaultOptions = draw_options(random)
    with World(seed, options, keeps_trace=keeps_trace) as world:
        toy = Toy(world, nodes=random.choice((3, 3, 5)), clients=3, adds=8, is_careless=is_careless)
        nemesis = Nemesis(world, toy.names, toy.clients)
        nemesis.torment()
        world.run(virtual_s)
        for name in toy.names:
            world.cut_power(name)
        if toy.lost():
            raise Lost(f"seed {seed} lost {toy.lost()}")
        world.note("end", "world", len(toy.acknowledged))
        return Run(world.trace_hash, world.loop.events, nemesis.faults, len(toy.acknowledged), world.trace.kept)
