"""A listening address: accepts connections within limits, closes idle ones, and stops gracefully.

Refused connections are closed without a response and logged once a second, similar ones together. There is one timer
for all connections: a sweep each second checks each of them.

Nodes of this cluster have slots of their own. Because only requests identify the other end, a connection beyond the
client limits is admitted on probation: it may send only requests that nodes send, and is closed unless its first
request after ApiVersions identifies it as a node's (`peer_connections`). A flood of clients can therefore not keep
followers from fetching.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Iterator
from functools import partial

from penstock.model.ports import Clock, Connection, Listener
from penstock.server.connections.connection import ServedConnection, Service

logger = logging.getLogger("penstock.listener")

SWEEP_MS = 1_000
ACCEPTS_PER_TURN = 16
"""Connections accepted in a row before the loop yields to open connections."""
PROBATION_SHARE = 4
"""The rate limit of connections on probation is `connection_rate_max` divided by this."""
RETRY_MS = 100
"""Pause after a failed accept, for example because no file descriptor is left."""


class ConnectionListener:
    """The connections of one listening address."""

    def __init__(self, listener: Listener, service: Service, clock: Clock, on_broken: Callable[[str], None]) -> None:
        """`on_broken` is called when accepting has failed for good: an unreachable node must not keep leading."""
        self._listener = listener
        self._service = service
        self._clock = clock
        self._connections: dict[int, ServedConnection] = {}
        self._per_host: dict[str, int] = {}
        """Number of client connections by host."""
        self._peers: dict[int, None] = {}
        """Connections of nodes of this cluster, by number."""
        self._beyond: dict[int, tuple[str, str]] = {}
        """Limits exceeded by connections beyond the client limits that are not recognized as a node's, by number."""
        self._on_probation: dict[int, int] = {}
        """Accept times of the connections that may still be recognized as a node's, oldest first."""
        self._probation_tokens = service.limits.connection_rate_max / PROBATION_SHARE
        self._numbers = 0
        self._tokens = float(service.limits.connection_rate_max)
        self._tokens_at_ms = service.now_ms = clock.monotonic_ms()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False
        self._all_ended: asyncio.Future[None] | None = None
        self._on_broken = on_broken
        self.refused = 0
        """Number of connections closed because of a limit."""

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[ServedConnection]:
        return iter(list(self._connections.values()))

    @property
    def address(self) -> str:
        """Host and port that the socket is bound to."""
        return self._listener.address

    def start(self) -> None:
        """Starts accepting connections."""
        self._tasks = [asyncio.create_task(self._accept()), asyncio.create_task(self._sweep())]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    async def stop(self, deadline_ms: int) -> None:
        """Stops accepting, lets in-flight requests finish until the deadline, and closes the remaining connections."""
        self._is_stopping = True
        self._listener.close()
        if self._tasks:  # else it was never started
            self._tasks[0].cancel()
        for connection in self:
            connection.stop()
        if self._connections:
            self._all_ended = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(deadline_ms / 1000):
                    await self._all_ended
            except TimeoutError:
                logger.warning(
                    "%d connections still had requests under way after %d ms and were closed: "
                    "their clients will ask again; raise stop_ms if they should be waited for.",
                    len(self._connections),
                    deadline_ms,
                )
        self._tasks += [connection.task for connection in self._connections.values() if connection.task is not None]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._service.client_warnings.tick()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.critical("%s failed by a mistake of ours: %r.", self.address, error, exc_info=error)
            self._on_broken(
                f"{self.address} accepts no connections any more by a mistake of ours ({error!r}): "
                "start the node again, and report this."
            )

    # --- accepting ------------------------------------------------------------------------------------------------

    async def _accept(self) -> None:
        accepted = 0
        while not self._is_stopping:
            try:
                connection = await self._listener.accept()
            except OSError as error:
                if error.errno == errno.EBADF:
                    return
                self._service.client_warnings.say(
                    "accept",
                    f"{self.address} cannot accept connections: {error}; close some, or raise the limit (ulimit -n).",
                )
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            self._admit(connection)
            accepted += 1
            if accepted % ACCEPTS_PER_TURN == 0:
                await asyncio.sleep(0)

    def _admit(self, connection: Connection) -> None:
        host = connection.peer.rpartition(":")[0]
        reason = self._why_not(host)
        is_on_probation = reason is not None
        if reason is not None and not self._has_room_on_probation():
            self._refuse(connection, reason)
            connection.close()
            return
        self._numbers += 1
        number = self._numbers
        served = self._connections[number] = ServedConnection(
            connection,
            self._service,
            number,
            is_on_probation=is_on_probation,
            on_peer=partial(self._recognized, number, host),
        )
        if reason is not None:
            self._beyond[number] = reason
            self._on_probation[number] = self._clock.monotonic_ms()
        else:
            self._per_host[host] = self._per_host.get(host, 0) + 1
        served.task = asyncio.get_running_loop().create_task(served.run())
        served.task.add_done_callback(partial(self._forget, number, host, connection))

    def _has_room_on_probation(self) -> bool:
        """Whether a connection beyond the limits is admitted on probation; the oldest there may be closed for it."""
        limits = self._service.limits
        if not limits.probation_connections_max or self._probation_tokens < 1:
            return False
        if len(self._peers) >= limits.peer_connections_max:
            return False
        self._probation_tokens -= 1
        if len(self._on_probation) >= limits.probation_connections_max:
            self._end_quietly(next(iter(self._on_probation)))
        return True

    def _recognized(self, number: int, host: str) -> None:
        """Moves a connection that is recognized as a node's from a client slot to a node slot."""
        if len(self._peers) >= self._service.limits.peer_connections_max or number not in self._connections:
            return
        self._on_probation.pop(number, None)
        if self._beyond.pop(number, None) is None:
            self._leave_host(host)
        self._peers[number] = None

    def _refuse(self, connection: Connection, reason: tuple[str, str]) -> None:
        self.refused += 1
        self._service.client_warnings.say(reason[0], f"Refused a connection from {connection.peer}: {reason[1]}.")

    def _end_quietly(self, number: int) -> None:
        del self._on_probation[number]
        connection = self._connections[number]
        if connection.task is not None:
            connection.task.cancel()

    def _why_not(self, host: str) -> tuple[str, str] | None:
        """The limit that one more connection would exceed, with advice; None if it may be admitted."""
        limits = self._service.limits
        now_ms = self._clock.monotonic_ms()
        earned = (now_ms - self._tokens_at_ms) * limits.connection_rate_max / 1000
        self._tokens, self._tokens_at_ms = min(float(limits.connection_rate_max), self._tokens + earned), now_ms
        most = limits.connection_rate_max / PROBATION_SHARE
        self._probation_tokens = min(most, self._probation_tokens + earned / PROBATION_SHARE)
        if len(self._connections) - len(self._peers) - len(self._beyond) >= limits.connections_max:
            return "connections", f"{limits.connections_max} are open; close some, or raise connections_max"
        if self._per_host.get(host, 0) >= limits.connections_per_host_max:
            advice = "let its clients share connections, or raise connections_per_host_max"
            return "connections per host", f"{host} has {limits.connections_per_host_max} open; {advice}"
        if self._tokens < 1:
            advice = "let clients reconnect more slowly (reconnect.backoff.ms), or raise connection_rate_max"
            return "connection rate", f"more than {limits.connection_rate_max} came within a second; {advice}"
        self._tokens -= 1
        return None

    def _forget(self, number: int, host: str, connection: Connection, _: "asyncio.Task[None]") -> None:
        connection.close()  # its task may have been cancelled before it began
        del self._connections[number]
        self._on_probation.pop(number, None)
        if (reason := self._beyond.pop(number, None)) is not None:
            self._refuse(connection, reason)
        elif number in self._peers:
            del self._peers[number]
        else:
            self._leave_host(host)
        if self._all_ended is not None and not self._connections and not self._all_ended.done():
            self._all_ended.set_result(None)

    def _leave_host(self, host: str) -> None:
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]

    # --- sweeping -------------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        service = self._service
        while True:
            await asyncio.sleep(SWEEP_MS / 1000)
            service.now_ms = self._clock.monotonic_ms()
            service.client_warnings.tick()
            late_ms = service.now_ms - service.limits.probation_ms
            for number in [number for number, since_ms in self._on_probation.items() if since_ms < late_ms]:
                self._end_quietly(number)
            for number, connection in enumerate(self):
                self._look_at(connection)
                if number % 1000 == 999:
                    await asyncio.sleep(0)

    def _look_at(self, connection: ServedConnection) -> None:
        """Closes a connection that has waited too long for its other end."""
        limits, now_ms = self._service.limits, self._service.now_ms
        is_idle = now_ms - connection.active_ms > limits.connection_idle_ms
        if connection.is_sending:
            if is_idle:
                self._end(connection, "unread", f"{connection.peer} has not read its answers for too long")
        elif connection.has_partial:
            if connection.is_reading and now_ms - connection.frame_began_ms > limits.frame_arrival_ms:
                what = f"a request of {connection.peer} was not whole after {limits.frame_arrival_ms} ms"
                self._end(connection, "partial", what)
        elif is_idle and connection.is_quiet and connection.task is not None:
            logger.debug("Closed the connection of %s: nothing happened on it for too long.", connection.peer)
            connection.task.cancel()

    def _end(self, connection: ServedConnection, kind: str, what: str) -> None:
        self._service.client_warnings.say(
            kind, f"Closed a connection: {what}; look at the client and at the network between."
        )
        if connection.task is not None:
            connection.task.cancel()
