"""The listeners of a node: one for clients, one for other controllers, one for metrics and health.

Sockets are bound before all other parts are created, so that each part can be given the addresses; connections are
accepted when the node is ready. All listeners for Kafka's protocol share the memory for requests.
"""

from collections.abc import Callable
from typing import Final

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
        self.clients: Listener | None = None
        self.controllers: Listener | None = None
        self.metrics: Listener | None = None

    def close(self) -> None:
        """Closes the bound sockets."""
        for each in (self.clients, self.controllers, self.metrics):
            if each is not None:
                each.close()


async def bind(network: Network, settings: NodeSettings) -> Sockets:
    """Binds the addresses of the settings. Raises CannotStart if one is taken."""
    sockets, membership = Sockets(), settings.membership
    try:
        if membership.is_broker:
            where = "penstock dev --port, or listeners"
            sockets.clients = await _listen(network, settings.listen_host, settings.listen_port, where)
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

        def listener(place: Listener, dispatch: Dispatch, forwards: Forward | None = None) -> ConnectionListener:
            service = Service(dispatch, limits, self.pool, self.large_pool, client_warnings, codec, forwards)
            return ConnectionListener(place, service, clock, on_broken)

        self.clients = None if sockets.clients is None else listener(sockets.clients, brokers, forward)
        self.controllers = None if sockets.controllers is None else listener(sockets.controllers, controllers)
        self.doors: dict[str, tuple[ConnectionListener, Dispatch]] = {}
        """Each listener with its API table, by CLIENTS or CONTROLLERS."""
        if self.clients is not None:
            self.doors[CLIENTS] = self.clients, brokers
        if self.controllers is not None:
            self.doors[CONTROLLERS] = self.controllers, controllers
        self._running = [each for each, _ in self.doors.values()]

    @property
    def address(self) -> str:
        """Host and port for clients; those of the controller listener if this node is no broker."""
        return self.controller_address if self.clients is None else self.clients.address

    @property
    def controller_address(self) -> str:
        """Host and port where other nodes reach the metadata quorum; empty without a controller listener."""
        return "" if self.controllers is None else self.controllers.address

    async def stop_clients(self, deadline_ms: int) -> None:
        """Stops accepting clients, and lets in-flight requests finish until the deadline."""
        if self.clients is not None and self.clients in self._running:
            await self.clients.stop(deadline_ms)
            self._running.remove(self.clients)

    async def stop(self) -> None:
        """Stops the listeners that still run and closes their connections."""
        for each in self._running:
            await each.stop(CONTROLLER_STOP_MS)
        self._running.clear()
