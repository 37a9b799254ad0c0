"""The open connections of a client, by address and lane.

Responses of one connection arrive in order, so a caller that may wait long (a polling consumer) has a lane of its own.
Two callers that need the same connection open it once. A connection whose login is about to expire is retired: the next
caller gets a new one, and the old one closes after its last response.
"""

import asyncio

from penstock.client.bootstrap import Address
from penstock.client.connection.connection import BrokerConnection, Login, open_connection
from penstock.client.errors import Closed
from penstock.client.ports import ClientPorts

_LOGIN_USED_PERCENT_MAX = 85

Key = tuple[Address, str]


class Pool:
    """See the module."""

    def __init__(
        self,
        ports: ClientPorts,
        *,
        client_id: str | None,
        login: Login | None,
        connect_timeout_ms: int,
        timeout_ms: int,
    ) -> None:
        self._ports = ports
        self._client_id = client_id
        self._login = login
        self._connect_timeout_ms = connect_timeout_ms
        self._timeout_ms = timeout_ms
        self._open: dict[Key, tuple[BrokerConnection, int | None]] = {}
        self._opening: dict[Key, asyncio.Task[BrokerConnection]] = {}
        self._retired: list[BrokerConnection] = []
        self._is_closed = False

    def opened(self, lane: str = "") -> list[Address]:
        """Addresses with an open connection."""
        return [address for address, each in list(self._open) if each == lane and self._usable((address, each))]

    async def connection(self, address: Address, lane: str = "") -> BrokerConnection:
        """The connection to an address, opened if necessary."""
        key = (address, lane)
        if self._is_closed:
            raise Closed("this client was closed")
        if usable := self._usable(key):
            return usable
        opening = self._opening.get(key)
        if opening is None:
            opening = self._opening[key] = asyncio.get_running_loop().create_task(self._make(key))
            opening.add_done_callback(_look_at_failure)
        return await asyncio.shield(opening)

    async def _make(self, key: Key) -> BrokerConnection:
        address, _ = key
        try:
            connection = await open_connection(
                self._ports.network,
                address.host,
                address.port,
                address=str(address),
                client_id=self._client_id,
                login=self._login,
                connect_timeout_ms=self._connect_timeout_ms,
                timeout_ms=self._timeout_ms,
            )
        finally:
            self._opening.pop(key, None)
        expires_ms = None
        if connection.login_lasts_ms:
            lasts_ms = connection.login_lasts_ms * _LOGIN_USED_PERCENT_MAX // 100
            expires_ms = self._ports.clock.monotonic_ms() + lasts_ms
        self._open[key] = (connection, expires_ms)
        return connection

    def _usable(self, key: Key) -> BrokerConnection | None:
        found = self._open.get(key)
        if found is None:
            return None
        connection, expires_ms = found
        if connection.is_closed:
            del self._open[key]
            return None
        if expires_ms is not None and self._ports.clock.monotonic_ms() >= expires_ms:
            del self._open[key]
            self._retired = [each for each in self._retired if not each.is_closed]
            self._retired.append(connection)
            connection.close_when_idle()
            return None
        return connection

    async def close(self, lane: str | None = None) -> None:
        """Closes the connections of a lane, or all of them and the pool itself."""
        self._is_closed = self._is_closed or lane is None
        closing = [self._open.pop(key)[0] for key in list(self._open) if lane is None or key[1] == lane]
        opening = [task for key, task in self._opening.items() if lane is None or key[1] == lane]
        for task in opening:
            task.cancel()
        if lane is None:
            closing += self._retired
        for each in closing:
            each.end()  # before the first await, at which the caller may be cancelled
        await asyncio.gather(*opening, *(each.close() for each in closing), return_exceptions=True)


def _look_at_failure(task: "asyncio.Task[BrokerConnection]") -> None:
    if not task.cancelled():
        task.exception()  # the caller that requested the connection may be gone
