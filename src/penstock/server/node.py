"""A node: the composition root that puts ports, storage, quorum member, broker and listeners together.

    storage    the open data directory, and the group commit that makes its logs durable
    member     this node's member of the metadata quorum, and the controller on top of it
    broker     partitions, replicas, groups, and the broker's registration with the cluster
    listeners  the sockets for clients and controllers, with a table of handlers each

Each part is complete when constructed, and depends only on parts constructed before it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from penstock.client.bootstrap import Address
from penstock.client.ports import ClientPorts
from penstock.model.errors import ProtocolError
from penstock.model.loopback import is_loopback
from penstock.model.ports import Footprint, Listener
from penstock.raft.replicas import Endpoint
from penstock.server.broker import Broker
from penstock.server.connections.advertised import AdvertisedBrokers, endpoints, parse_address
from penstock.server.connections.client_warnings import ClientWarnings
from penstock.server.connections.codec_worker import CodecWorker
from penstock.server.connections.dispatch import Dispatch
from penstock.server.connections.http_listener import HttpListener
from penstock.server.connections.listeners import Listeners, Sockets, bind
from penstock.server.connections.serving import Call
from penstock.server.controller.controller_channel import ControllerChannel
from penstock.server.controller.controller_registration import register
from penstock.server.controller.metadata_catch_up import catch_up
from penstock.server.handlers.tables import BROKER_ONLY, broker_handlers, controller_handlers, shared_handlers
from penstock.server.health import Health
from penstock.server.loop.pacing import begin_pacing
from penstock.server.loop.stall import StallMeter
from penstock.server.metrics.gathering import Gathering, gathering_of
from penstock.server.metrics.pages import pages_of
from penstock.server.partitions.topic_arrivals import TopicArrivals
from penstock.server.ports import Ports
from penstock.server.quorum_member import QuorumMember
from penstock.server.settings import CannotStart, NodeSettings, check_listeners
from penstock.server.storage import Storage, open_storage
from penstock.server.supervisor import Supervisor
from penstock.wire.api import CONTROLLER_ONLY
from penstock.wire.declare import Request, Response

logger = logging.getLogger("penstock.node")


class Node:
    """One node in one process: a broker, a controller, or both.

    `start` opens everything; `ready` returns when the node serves, which in a cluster requires a quorum.
    """

    storage: Storage
    member: QuorumMember
    broker: Broker
    listeners: Listeners
    health: Health

    def __init__(
        self,
        ports: Ports,
        settings: NodeSettings,
        on_failure: Callable[[str], None] = lambda _sentence: None,
        footprint: Callable[[], Footprint] | None = None,
        handlers: Sequence[object] | None = None,
    ) -> None:
        """`on_failure` is called with the reason why the node must be stopped; `footprint` measures the process.

        `handlers` replace the broker's handlers for clients.
        """
        self.ports = ports
        self.settings = settings
        self.supervisor = Supervisor(on_failure)
        self.stalls = StallMeter(settings.stall_ms_max)
        self._footprint = footprint
        self._handlers = handlers
        self._client_warnings = ClientWarnings()
        self.arrivals = TopicArrivals()
        self.codec = CodecWorker(ports.workers, settings.limits)
        self._gathering: Gathering | None = None
        self._http: HttpListener | None = None
        self._joining: asyncio.Task[None] | None = None

    @property
    def metrics_address(self) -> str:
        """Host and port of the metrics listener; empty if there is none."""
        return "" if self._http is None else self._http.address

    @property
    def address(self) -> str:
        """Host and port of the first client listener; of the controller listener if there is no broker."""
        return self.listeners.address

    @property
    def controller_address(self) -> str:
        """Host and port of the controller listener; empty if there is none."""
        return self.listeners.controller_address

    # --- starting -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens data directory and listeners and begins to join the cluster; a node that is alone is then ready."""
        check_listeners(self.settings)
        begin_pacing()
        self.storage = await open_storage(self.ports, self.settings)
        try:
            sockets = await bind(self.ports.network, self.settings)
        except BaseException:
            await self.storage.directory.close(leaves_marker=self.storage.has_lost_nothing)
            raise
        self._put_together(sockets)
        self._commit = self.supervisor.watch(self.storage.rounds.run(), "group commit")
        self.supervisor.watch(self.stalls.run(), "stall meter", is_vital=False)
        try:
            await self.member.quorum.load()
            if sockets.metrics is not None and self.settings.metrics is not None:
                self._show_metrics(sockets.metrics, self.settings.metrics)
            self._joining = asyncio.get_running_loop().create_task(self._join())
            self.supervisor.observe(self._joining, "joining")
            if self.settings.membership.is_alone:
                await self.ready()
        except BaseException:
            await self._close()
            raise

    def _put_together(self, sockets: Sockets) -> None:
        ports, settings, supervisor, client_warnings = self.ports, self.settings, self.supervisor, self._client_warnings
        storage, arrivals, codec = self.storage, self.arrivals, self.codec
        self.member = member = QuorumMember(storage, ports, settings, supervisor, client_warnings, arrivals)
        advertised = AdvertisedBrokers(settings.node_id, settings.listeners)
        shared = shared_handlers(member, advertised, ports, settings, client_warnings, arrivals)
        own = controller_handlers(member, settings, client_warnings, codec)
        self.controller_dispatch = Dispatch([*shared, *own], leaves_out=BROKER_ONLY)
        routes = self.controller_dispatch.routes
        client_ports = ClientPorts(ports.network, ports.clock, ports.entropy)
        channel = ControllerChannel(client_ports, member.controller, member.quorum, codec, routes)
        bound = [each.address for each in sockets.clients]
        reached = endpoints(settings.listeners, bound, settings.inter_broker_listener) if bound else []
        self.broker = broker = Broker(storage, member, channel, ports, settings, supervisor, arrivals, reached)
        if self._handlers is None:
            own = broker_handlers(broker, member, channel, advertised, storage, ports, settings, arrivals, codec)
            self.dispatch = Dispatch([*shared, *own], leaves_out=CONTROLLER_ONLY)
        else:
            self.dispatch = Dispatch(self._handlers)

        async def forward(request: Request, call: Call) -> Response:
            """Forwards to the active controller; the reply waits until this node has applied the change."""
            is_here = member.controller.is_active
            response = await channel.forward(request, call)
            if not is_here:
                await catch_up(request, response, member.controller, arrivals)
            return response

        self.listeners = Listeners(
            sockets,
            settings,
            ports.clock,
            codec,
            client_warnings,
            brokers=self.dispatch,
            controllers=self.controller_dispatch,
            forward=forward,
            on_broken=supervisor.fail,
        )
        self.channel = channel
        self.health = Health(
            member.controller, storage.directory, broker.lease, supervisor, is_broker=settings.membership.is_broker
        )
        storage.rounds.covered.connect(broker.on_round)
        storage.rounds.covered.connect(lambda _covered: member.quorum.advance())

    def _show_metrics(self, socket: Listener, address: Address) -> None:
        """Serves metrics from now on, also while the node joins its cluster."""
        self._gathering = gathering_of(
            self.storage,
            self.member,
            self.broker,
            self.listeners,
            self.ports,
            self.settings,
            self.stalls,
            self._footprint,
        )
        self._http = HttpListener(
            socket,
            pages_of(self.health, self._gathering),
            self.settings.limits,
            self._client_warnings,
            is_on_loopback=is_loopback(address.host),
        )
        self._http.start()

    async def _join(self) -> None:
        listeners = self.listeners
        try:
            await self.member.join()
            if listeners.controllers is not None:
                listeners.controllers.start()
            await self.member.has_leader()
            if listeners.clients:
                await self.broker.join()
                listeners.start_clients()
                logger.info("Listening on %s.", ", ".join(listeners.client_addresses.values()))
            self.health.is_serving = True
        except (CannotStart, ProtocolError) as error:
            if self.settings.membership.is_alone:  # raised by `start`
                raise CannotStart(str(error)) from error
            self.supervisor.fail(f"This node cannot join its cluster: {error}")
            return
        self.member.snapshots.start()
        self.supervisor.watch(self.broker.upkeep.run(), "upkeep")
        if listeners.controllers is not None:
            self.supervisor.watch(self._register(), "registration of the controller")

    async def _register(self) -> None:
        listener, settings, member = self.settings.membership.listener, self.settings, self.member
        assert listener is not None
        place = parse_address(self.controller_address)
        endpoint = member.quorum.endpoint_of(settings.node_id) or Endpoint(listener.name, place.host, place.port)
        incarnation_id = member.controller.incarnation_id
        await register(self.channel, member.quorum, settings.cluster_id, incarnation_id, endpoint, settings.features)

    async def ready(self) -> None:
        """Returns when the node serves; CannotStart when it never will."""
        assert self._joining is not None, "start first"
        await asyncio.shield(self._joining)
        if not self.health.is_serving:
            raise CannotStart("The node could not join its cluster; what it logged says why.")

    # --- stopping -------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Runs a controlled shutdown, answers in-flight requests, and closes the data directory cleanly."""
        self.supervisor.is_stopping = True
        is_member = bool(self.listeners.clients) and self.health.is_serving
        if is_member and self.member.controller.offline_reason is None:
            await self.broker.membership.leave(self.settings.stop_ms)
        await self.broker.groups.stop()
        await self.listeners.stop_clients(self.settings.stop_ms)
        await self._close()
        logger.info("Stopped.")

    async def _close(self) -> None:
        storage, member, broker, supervisor = self.storage, self.member, self.broker, self.supervisor
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)
        if self._http is not None and self._gathering is not None:
            await self._http.stop()
            await self._gathering.stop()
        await broker.groups.stop()
        await member.stop()
        await self.listeners.stop()
        broker.deadlines.stop()
        async with storage.lock:  # so that no task is stopped in the middle of work on a log
            storage.rounds.stop()
            await asyncio.gather(self._commit, return_exceptions=True)
            supervisor.cancel()
            snapshots = member.snapshots.cancel()
            await broker.replicas.stop()
            await broker.upkeep.stop()
        await supervisor.ended()
        await asyncio.gather(*snapshots, return_exceptions=True)
        await member.close()
        await self.channel.close()
        await broker.note_reported()
        await storage.directory.close(leaves_marker=broker.has_told_losses)
