"""This broker as a member of its cluster: registration, heartbeats, unfencing and controlled shutdown.

A broker is fenced until it has followed the metadata log up to its own registration. A node that is the only voter and
the only broker is never fenced. A broker that finds another process under its own id stops.

An answered heartbeat extends the broker's lease (`lease.py`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from penstock.metadata.commands import RegisterBroker
from penstock.metadata.records import BrokerEndpoint, BrokerFeature
from penstock.metadata.runtime import NotController
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.model.ports import Clock
from penstock.server.controller.controller_channel import ControllerChannel
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.membership.lease import Lease
from penstock.server.settings import CannotStart, Feature
from penstock.wire.messages import broker_registration as registering
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

logger = logging.getLogger("penstock.membership")

RETRY_S: Final = 0.1
EAGER_S: Final = 0.02
"""Time between heartbeats of a broker that waits to be unfenced or to shut down."""
HOPELESS: Final = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the controllers belong to another cluster: check cluster.id",
    ErrorCode.UNSUPPORTED_VERSION: "the cluster uses features that this version does not have: upgrade this node",
    ErrorCode.INVALID_REGISTRATION: "another broker has registered this data directory: check node.id and log.dirs",
}


class Membership:
    """See the module."""

    def __init__(
        self,
        controller: ControllerRunner,
        channel: ControllerChannel,
        lease: Lease,
        *,
        cluster_id: str,
        directory_id: bytes,
        listeners: Sequence[BrokerEndpoint],
        features: Sequence[Feature],
        rack: str | None,
        clock: Clock,
        begin_life: Callable[[int], Awaitable[None]],
        on_failure: Callable[[str], None],
    ) -> None:
        """`begin_life` is called with the new epoch when the running broker had to register again."""
        self._controller = controller
        self._channel = channel
        self._lease = lease
        self._cluster_id = cluster_id
        self._directory_id = directory_id
        self._listeners = listeners
        self._features = features
        self._rack = rack
        self._clock = clock
        self._begin_life = begin_life
        self._on_failure = on_failure
        self._has_news = asyncio.Event()
        self.can_write = True
        """Whether the disk accepts records; sent with the next heartbeat."""
        self.epoch = -1

    # --- registration ---------------------------------------------------------------------------------------------

    async def register(self, previous_epoch: int) -> None:
        """Returns when this broker is registered. Raises CannotStart if the cluster will never accept it."""
        if self._controller.is_alone:
            await self._register_alone()
            return
        told = ErrorCode.NONE
        while True:
            code = await self._try_to_register(previous_epoch)
            if code is ErrorCode.NONE:
                return
            if code in HOPELESS:
                lacks = self._lacks() if code is ErrorCode.UNSUPPORTED_VERSION else ""
                raise CannotStart(f"This broker is not let into the cluster: {HOPELESS[code]}{lacks}.")
            if code is ErrorCode.STALE_BROKER_EPOCH:  # a later epoch was active: this directory may lack records
                previous_epoch = -1
            if code is not told:
                logger.warning("This broker is not registered yet (%s), and goes on trying.", code.name)
                told = code
            await asyncio.sleep(RETRY_S)

    def _lacks(self) -> str:
        """The finalized feature levels that this version does not support, as far as the metadata log was followed."""
        known = {each.name: each for each in self._features}
        lacking = []
        for name, level in sorted(self._controller.image.features.items()):
            here = known.get(name)
            if here is None:
                lacking.append(f"{name} is at level {level}, and not known here")
            elif not here.min_version <= level <= here.max_version:
                lacking.append(f"{name} is at level {level}, and {here.min_version}-{here.max_version} are known here")
        return f" ({'; '.join(lacking)})" if lacking else ""

    async def _register_alone(self) -> None:
        command = RegisterBroker(
            broker_id=self._controller.node_id,
            incarnation_id=self._controller.incarnation_id,
            epoch=self._controller.end_offset,
            listeners=tuple(self._listeners),
            features=tuple(
                BrokerFeature(name=f.name, min_supported_version=f.min_version, max_supported_version=f.max_version)
                for f in self._features
            ),
            rack=self._rack,
            log_dirs=(self._directory_id,),
        )
        registered = await self._controller.ask(command)
        if registered.code:
            raise CannotStart(f"This broker cannot be registered: {registered.message}")
        self.epoch = registered.epoch

    async def _try_to_register(self, previous_epoch: int) -> ErrorCode:
        request = registering.BrokerRegistrationRequest(
            broker_id=self._controller.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._controller.incarnation_id,
            listeners=[
                registering.Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in self._listeners
            ],
            features=[
                registering.Feature(
                    name=f.name, min_supported_version=f.min_version, max_supported_version=f.max_version
                )
                for f in self._features
            ],
            rack=self._rack,
            log_dirs=[self._directory_id],
            previous_broker_epoch=previous_epoch,
        )
        try:
            response = await self._channel.ask(request, registering.BrokerRegistrationResponse)
        except NotController as error:
            return error.code
        if response.error_code is ErrorCode.NONE:
            self.epoch = response.broker_epoch
        return response.error_code

    async def caught_up(self) -> None:
        """Returns when the image contains this registration."""
        controller = self._controller
        await controller.until(lambda: controller.position > self.epoch)

    async def let_in(self) -> None:
        """Sends heartbeats until the broker is unfenced."""
        controller = self._controller

        def is_in() -> bool:
            broker = controller.image.brokers.get(controller.node_id)
            return broker is not None and broker.epoch == self.epoch and not broker.is_fenced

        while not is_in():
            await self._say()
            if not is_in():
                await asyncio.sleep(EAGER_S)

    # --- heartbeats -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Sends heartbeats until cancelled."""
        while True:
            self._has_news.clear()
            code = await self._say()
            if code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
                await self._find_out()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._controller.settings.number("broker.heartbeat.interval.ms") / 1000):
                    await self._has_news.wait()

    def tell_disk(self, *, can_write: bool) -> None:
        """Records whether the disk accepts records, and triggers a heartbeat that reports it."""
        self.can_write = can_write
        self._has_news.set()

    async def _say(self) -> ErrorCode:
        return (await self._heartbeat()).error_code

    async def _heartbeat(self, *, wants_shutdown: bool = False) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=self._controller.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._controller.position - 1,
            want_fence=False,
            want_shut_down=wants_shutdown,
            offline_log_dirs=() if self.can_write or self._controller.is_alone else (self._directory_id,),
        )
        timeout_ms = self._session_ms if wants_shutdown else max(1, self._session_ms // 3)
        asked_ms = self._clock.monotonic_ms()
        try:
            said = await self._channel.ask(request, BrokerHeartbeatResponse, timeout_ms=timeout_ms, lane="heartbeat")
        except ProtocolError as error:  # no controller, or this node's own is offline, and the node stops
            return BrokerHeartbeatResponse(throttle_time_ms=0, error_code=error.code, should_shut_down=False)
        if said.error_code is ErrorCode.NONE and not said.is_fenced:
            self._lease.extend(asked_ms, self._session_ms)
        return said

    @property
    def _session_ms(self) -> int:
        """The session timeout. It limits the wait for a hung controller: a new one may need this broker's heartbeat."""
        return self._controller.settings.number("broker.session.timeout.ms")

    async def _find_out(self) -> None:
        """Handles a registration that the cluster has lost: stops if another process has the id, or registers again."""
        controller = self._controller
        known = controller.image.brokers.get(controller.node_id)
        if known is not None and known.epoch > self.epoch and known.incarnation_id != self._controller.incarnation_id:
            self._on_failure(
                f"Another process has registered as broker {controller.node_id}, and this one stops: "
                "give each node a node.id of its own."
            )
            return
        if known is None or known.epoch != self.epoch:
            logger.warning("The cluster has forgotten this broker; it registers again.")
            await self.register(-1)
            await self.caught_up()
            await self._begin_life(self.epoch)

    # --- controlled shutdown --------------------------------------------------------------------------------------

    async def leave(self, timeout_ms: int) -> None:
        """Hands over leadership of all partitions, as far as the timeout allows."""
        controller = self._controller
        others = [each for each, broker in controller.image.brokers.items() if broker.is_active]
        if not [each for each in others if each != controller.node_id]:
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not (answer := await self._heartbeat(wants_shutdown=True)).should_shut_down:
                    if answer.error_code is ErrorCode.NOT_CONTROLLER:
                        logger.warning("There is no controller that could let others take over what is led here.")
                        return
                    await asyncio.sleep(EAGER_S)
        except TimeoutError:
            logger.warning("Others did not take over what is led here within %d ms.", timeout_ms)
