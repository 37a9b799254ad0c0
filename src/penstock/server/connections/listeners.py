"""The listeners of a node: those for clients and brokers, one for other controllers, one for metrics and health.

Sockets are bound before all other parts are created, so that each part can be given the addresses; connections are
accepted when the node is ready. All listeners for Kafka's protocol share the memory for requests. A connection knows
the name of its listener: answers to it name addresses of that listener.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.model.ports import Clock, Listener, Network
from penstock.server.connections.client_warnings import ClientWarnings
from penstock.server.connections.codec_worker import CodecWorker
from penstock.server.connections.connection import Forward, Service
from penstock.server.connections.dispatch import Dispatch
from penstock.server.connections.input_pool import InputPool
from penstock.server.connections.listener import ConnectionListener
from penstock.server.settings import CannotStart, NodeSettings

CLIENTS: Final = "clients"
CONTROLLERS: Final = "controllers"
CONTROLLER_STOP_MS: Final = 500


class Sockets:
    """Bound sockets that do not accept yet; None where the node has no such listener."""

    def __init__(self) -> None:
        self.clients: list[Listener] = []
        """In the order of the settings; empty if the node is no broker."""
        self.controllers: Listener | None = None
        self.metrics: Listener | None = None

    def close(self) -> None:
        """Closes the bound sockets."""
        for each in (*self.clients, self.controllers, self.metrics):
            if each is not None:
                each.close()


async def bind(network: Network, settings: NodeSettings) -> Sockets:
    """Binds the addresses of the settings. Raises CannotStart if one is taken."""
    sockets, membership = Sockets(), settings.membership
    try:
        for each in settings.listeners if membership.is_broker else ():
            where = "penstock dev --port, or listeners"
            sockets.clients.append(await _listen(network, each.host, each.port, where))
        if membership.listener is not None and membership.is_controller:
            sockets.controllers = await _listen(
                network, membership.listener.host, membership.listener.port, "listeners"
            )
        if settings.metrics is not None:
            where = "penstock dev --metrics-port, or metrics.listener"
            sockets.metrics = await _listen(network, settings.metrics.host, settings.metrics.port, where)
    except BaseException:
        sockets.close()
        raise
    return sockets


async def _listen(network: Network, host: str, port: int, where: str) -> Listener:
    try:
        return await network.listen(host, port)
    except OSError as error:
        raise CannotStart(
            f"Cannot listen on {host}:{port}: {error}; "
            f"stop whoever listens there, or choose another port: {where} in its file."
        ) from error


class Door(NamedTuple):
    """A listener that speaks Kafka's protocol, and its API table."""

    listener: ConnectionListener
    dispatch: Dispatch
    kind: str
    """CLIENTS or CONTROLLERS."""


class Listeners:
    """The listeners that speak Kafka's protocol."""

    def __init__(
        self,
        sockets: Sockets,
        settings: NodeSettings,
        clock: Clock,
        codec: CodecWorker,
        client_warnings: ClientWarnings,
        *,
        brokers: Dispatch,
        controllers: Dispatch,
        forward: Forward,
        on_broken: Callable[[str], None],
    ) -> None:
        """`forward` forwards the requests of clients that only the active controller can answer."""
        limits = settings.limits
        self.pool = InputPool(limits.input_pool_bytes_max, limits.frame_lent_bytes)
        self.large_pool = InputPool(limits.large_input_pool_bytes_max, limits.frame_lent_bytes)

        def door(place: Listener, name: str, dispatch: Dispatch, kind: str) -> Door:
            forwards = forward if kind == CLIENTS else None
            service = Service(
                dispatch, limits, self.pool, self.large_pool, client_warnings, codec, forwards, listener=name
            )
            return Door(ConnectionListener(place, service, clock, on_broken), dispatch, kind)

        self.doors: dict[str, Door] = {}
        """By the name of the listener, in the order of the settings."""
        for number, (place, each) in enumerate(zip(sockets.clients, settings.listeners, strict=False)):
            self.doors[each.name] = door(place, each.name, brokers.copy() if number else brokers, CLIENTS)
        self.clients = [each.listener for each in self.doors.values()]
        """Empty if the node is no broker."""
        self.controllers: ConnectionListener | None = None
        if sockets.controllers is not None:
            assert settings.membership.listener is not None
            name = settings.membership.listener.name
            self.doors[name] = door(sockets.controllers, name, controllers, CONTROLLERS)
            self.controllers = self.doors[name].listener
        self._running = [each.listener for each in self.doors.values()]

    @property
    def address(self) -> str:
        """Host and port of the first listener for clients; of the controller listener if this node is no broker."""
        return self.clients[0].address if self.clients else self.controller_address

    @property
    def client_addresses(self) -> dict[str, str]:
        """Host and port of each listener for clients, by name."""
        return {name: each.listener.address for name, each in self.doors.items() if each.kind == CLIENTS}

    @property
    def controller_address(self) -> str:
        """Host and port where other nodes reach the metadata quorum; empty without a controller listener."""
        return "" if self.controllers is None else self.controllers.address

    def start_clients(self) -> None:
        """Starts accepting clients on all their listeners."""
        for each in self.clients:
            each.start()

    async def stop_clients(self, deadline_ms: int) -> None:
        """Stops accepting clients, and lets in-flight requests finish until the deadline."""
        stopping = [each for each in self.clients if each in self._running]
        await asyncio.gather(*(each.stop(deadline_ms) for each in stopping))
        self._running = [each for each in self._running if each not in stopping]

    async def stop(self) -> None:
        """Stops the listeners that still run and closes their connections."""
        for each in self._running:
            await each.stop(CONTROLLER_STOP_MS)
        self._running.clear()
