"""The cost of a request in the shell: ApiVersions over loopback, against a bare echo loop on the same sockets.

Requests are sent one at a time (ping-pong) and sixteen at a time (pipelined), in alternating rounds; the client is a
separate process. The echo parses nothing and sends as many responses of the same size, one by one. The best of many
short rounds is taken. It takes about half a minute.
"""

import asyncio
import json
import struct
import subprocess
import sys
import tempfile
from typing import NamedTuple

from penstock.host.sockets import HostConnection
from penstock.model.ports import Connection
from penstock.server.host_ports import HostPorts, host_ports
from penstock.server.node import Node
from penstock.server.settings import ListenerSettings, NodeSettings
from penstock.wire.headers import request_frame
from penstock.wire.messages.api_versions import ApiVersionsRequest

ROUNDS = 300
ROUND_REQUESTS = 320
DEPTHS = {"ping-pong": 1, "pipelined, 16 at a time": 16}
PING = bytes(request_frame(ApiVersionsRequest(), 2, 7, "bench"))

CLIENT = """
import socket, struct, sys, time
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
request, answer_bytes = bytes.fromhex(sys.argv[2]), int(sys.argv[3])
buffer = bytearray(1 << 20)
while order := sys.stdin.buffer.read(8):
    depth, count = struct.unpack("<II", order)
    batch = request * depth
    began = time.perf_counter()
    for _ in range(count // depth):
        connection.sendall(batch)
        left = answer_bytes * depth
        while left:
            left -= connection.recv_into(buffer, left)
    print(time.perf_counter() - began, flush=True)
"""


class Row(NamedTuple):
    name: str
    requests_per_s: float
    echoes_per_s: float

    @property
    def ratio(self) -> float:
        return self.requests_per_s / self.echoes_per_s

    def __str__(self) -> str:
        ours_us, echo_us = 1e6 / self.requests_per_s, 1e6 / self.echoes_per_s
        return (
            f"{self.name:<26} {self.requests_per_s:>9,.0f} requests/s ({ours_us:.1f} µs)"
            f"   bare echo: {self.echoes_per_s:>9,.0f}/s ({echo_us:.1f} µs)   ratio {self.ratio:.3f}"
        )


class Client:
    """A process that sends the requested number of requests."""

    def __init__(self, port: int, answer_bytes: int) -> None:
        command = [sys.executable, "-c", CLIENT, str(port), PING.hex(), str(answer_bytes)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    async def round_s(self, depth: int) -> float:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(struct.pack("<II", depth, ROUND_REQUESTS))
        process.stdin.flush()
        loop, there = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(process.stdout.fileno(), there.set)
        await there.wait()
        loop.remove_reader(process.stdout.fileno())
        return float(process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)


async def echo(connection: Connection, answer: bytes) -> None:
    view = memoryview(bytearray(4096))
    while count := await connection.receive_into(view):
        for _ in range(count // len(PING)):
            await connection.send([answer])
    connection.close()


async def answer_bytes(connection: HostConnection) -> int:
    await connection.send([PING])
    size = bytearray(4)
    await connection.receive_into(memoryview(size))
    connection.close()
    return 4 + int(struct.unpack(">i", size)[0])


async def measure(ports: HostPorts) -> list[Row]:
    node = Node(ports, NodeSettings("bench", listeners=(ListenerSettings(port=0),)))
    await node.start()
    host, _, port = node.address.rpartition(":")
    size = await answer_bytes(await ports.network.connect(host, int(port)))
    listener = await ports.network.listen("127.0.0.1", 0)
    ours, other = Client(int(port), size), Client(int(listener.address.rpartition(":")[2]), size)
    echoing = asyncio.create_task(echo(await listener.accept(), bytes(size)))
    rows = []
    for name, depth in DEPTHS.items():
        ours_s = other_s = float("inf")
        for _ in range(ROUNDS):
            ours_s = min(ours_s, await ours.round_s(depth))
            other_s = min(other_s, await other.round_s(depth))
        rows.append(Row(name, ROUND_REQUESTS / ours_s, ROUND_REQUESTS / other_s))
    ours.close()
    other.close()
    await echoing
    listener.close()
    await node.stop()
    return rows


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        ports = host_ports(directory)
        for row in asyncio.run(measure(ports)):
            print(json.dumps(row._asdict() | {"ratio": round(row.ratio, 4)}) if "--json" in sys.argv else row)
        ports.close()


if __name__ == "__main__":
    main()
