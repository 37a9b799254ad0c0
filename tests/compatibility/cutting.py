"""A network whose connections can be cut from inside, as by a bad cable: bytes may have arrived or not."""

import asyncio
import errno
from collections.abc import Sequence

from penstock.client.ports import ClientPorts, host_ports
from penstock.model.ports import Buffer, Connection, FileSlice, Listener, Network


class CuttableConnection:
    """A connection that can be cut; its responses are lost then."""

    def __init__(self, inner: Connection) -> None:
        self._inner = inner
        self.is_cut = False

    @property
    def peer(self) -> str:
        return self._inner.peer

    @property
    def local(self) -> str:
        return self._inner.local

    async def receive_into(self, view: memoryview) -> int:
        count = await self._inner.receive_into(view)
        if self.is_cut:
            raise ConnectionResetError(errno.ECONNRESET, "cut")
        return count

    def try_receive_into(self, view: memoryview) -> int | None:
        raise NotImplementedError("clients wait")

    async def readable(self) -> None:
        raise NotImplementedError("clients wait")

    async def send(self, buffers: Sequence[Buffer | FileSlice]) -> None:
        await self._inner.send(buffers)

    def close(self) -> None:
        self._inner.close()


class CuttingNetwork:
    """A network that can cut its connections."""

    def __init__(self, inner: Network) -> None:
        self._inner = inner
        self._connections: list[CuttableConnection] = []
        self.cuts = 0

    async def listen(self, host: str, port: int) -> Listener:
        return await self._inner.listen(host, port)

    async def connect(self, host: str, port: int) -> CuttableConnection:
        connection = CuttableConnection(await self._inner.connect(host, port))
        self._connections.append(connection)
        return connection

    async def until_connected(self) -> None:
        """Returns when there is a connection to cut."""
        while not self._connections:
            await asyncio.sleep(0.005)

    def cut(self, *, is_late: bool) -> None:
        """Breaks all connections: at once, or (late) when the next response arrives, which is lost with them."""
        connections, self._connections = self._connections, []
        for connection in connections:
            self.cuts += 1
            connection.is_cut = True
            if not is_late:
                connection.close()


def cutting_ports() -> tuple[ClientPorts, CuttingNetwork]:
    """The host's ports, with a network that can be cut."""
    ports = host_ports()
    network = CuttingNetwork(ports.network)
    return ClientPorts(network, ports.clock, ports.entropy, ports.close), network
