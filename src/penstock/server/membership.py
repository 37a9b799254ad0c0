"""This broker as a member of its cluster: it registers, says that it lives, is let in, and asks to be let go.

A broker is fenced until it has followed the metadata log up to its own registration. A node that is its own quorum and
has no other brokers has nobody to be fenced from. Who finds another process under its own number stops.

An answered heartbeat is a lease: for the greater part of a session nobody is given what this broker leads. Afterwards
it may be a leader of yesterday, which does not tell where a log ends today (`is_in_touch`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from penstock.metadata.commands import RegisterBroker
from penstock.metadata.records import BrokerEndpoint, BrokerFeature
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.model.ports import Clock
from penstock.server.controller_channel import ControllerChannel
from penstock.server.controller_runner import ControllerRunner, NotController
from penstock.server.settings import CannotStart, Feature
from penstock.wire.messages import broker_registration as registering
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

logger = logging.getLogger("penstock.membership")

RETRY_S: Final = 0.1
EAGER_S: Final = 0.02
"""Between heartbeats of a broker that waits to be let in or to be let go."""
LEASE_PART: Final = 2 / 3
"""Of a session: a controller that was replaced may have answered for a while without knowing it."""
FOREVER_MS: Final = 1 << 62
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
        *,
        cluster_id: str,
        directory_id: bytes,
        listeners: Sequence[BrokerEndpoint],
        features: Sequence[Feature],
        rack: str | None,
        clock: Clock,
        on_failure: Callable[[str], None],
    ) -> None:
        self._controller = controller
        self._channel = channel
        self._cluster_id = cluster_id
        self._directory_id = directory_id
        self._listeners = listeners
        self._features = features
        self._rack = rack
        self._clock = clock
        self._lease_end_ms = 0
        self._is_lease_own = False
        """Whether it was this node's own controller that answered; what that says counts while it is active."""
        self._on_failure = on_failure
        self._has_news = asyncio.Event()
        self.can_write = True
        """Whether the disk takes records: the next heartbeat tells."""
        self.epoch = -1
        self.on_leased: Callable[[], None] = _nobody_cares
        """Called when a controller has answered."""
        self.on_new_epoch: Callable[[int], Awaitable[None]] = _nobody_waits
        """Called when the broker had to be registered again while it ran."""

    # --- coming ---------------------------------------------------------------------------------------------------

    @property
    def _is_alone(self) -> bool:
        """Whether there are no others to be fenced from."""
        controller = self._controller
        voters = controller.quorum.raft.voters.ids
        others = [broker_id for broker_id in controller.image.brokers if broker_id != controller.node_id]
        return controller.is_active and voters == (controller.node_id,) and not others

    async def register(self, previous_epoch: int) -> None:
        """Returns when the cluster knows of this life of the broker. CannotStart when it never will."""
        if self._is_alone:
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
            if code is ErrorCode.STALE_BROKER_EPOCH:  # a later life of it was active: what this one kept is not all
                previous_epoch = -1
            if code is not told:
                logger.warning("This broker is not registered yet (%s), and goes on trying.", code.name)
                told = code
            await asyncio.sleep(RETRY_S)

    def _lacks(self) -> str:
        """Levels that are in force and not known here, as far as the metadata log was followed."""
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
        """Returns when the image here holds this registration."""
        controller = self._controller
        await controller.until(lambda: controller.position > self.epoch)

    async def let_in(self) -> None:
        """Returns when the broker is not fenced any more."""
        controller = self._controller

        def is_in() -> bool:
            broker = controller.image.brokers.get(controller.node_id)
            return broker is not None and broker.epoch == self.epoch and not broker.is_fenced

        while not is_in():
            await self._say()
            if not is_in():
                await asyncio.sleep(EAGER_S)

    # --- living ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Heartbeats, until cancelled."""
        while True:
            self._has_news.clear()
            code = await self._say()
            if code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
                await self._find_out()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._controller.settings.number("broker.heartbeat.interval.ms") / 1000):
                    await self._has_news.wait()

    def tell_disk(self, *, can_write: bool) -> None:
        """The disk takes no records any more, or takes them again; the cluster is told at once."""
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
            offline_log_dirs=() if self.can_write or self._is_alone else (self._directory_id,),
        )
        timeout_ms = self._session_ms if wants_shutdown else max(1, self._session_ms // 3)
        asked_ms = self._clock.monotonic_ms()
        try:
            said = await self._channel.ask(request, BrokerHeartbeatResponse, timeout_ms=timeout_ms, lane="heartbeat")
        except ProtocolError as error:  # no controller, or one that is offline for good: the node is being stopped then
            return BrokerHeartbeatResponse(throttle_time_ms=0, error_code=error.code, should_shut_down=False)
        if said.error_code is ErrorCode.NONE and not said.is_fenced:
            self._lease_end_ms = asked_ms + int(self._session_ms * LEASE_PART)
            self._is_lease_own = self._controller.is_active
            self.on_leased()
        return said

    @property
    def is_in_touch(self) -> bool:
        """Whether nobody else can have been given what this broker leads, as far as sessions decide that."""
        return self._clock.monotonic_ms() < self.leased_until_ms

    @property
    def leased_until_ms(self) -> int:
        """Until when nobody else can have been given what this broker leads."""
        if self._is_alone:
            return FOREVER_MS
        if self._is_lease_own and not self._controller.is_active:
            return 0
        return self._lease_end_ms

    @property
    def _session_ms(self) -> int:
        """A controller that stands still is not waited for: there may be a new one, which has not heard from here."""
        return self._controller.settings.number("broker.session.timeout.ms")

    async def _find_out(self) -> None:
        """The cluster does not know this registration any more: it was forgotten, or another process has taken over."""
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
            await self.on_new_epoch(self.epoch)

    # --- going ----------------------------------------------------------------------------------------------------

    async def leave(self, timeout_ms: int) -> None:
        """Hands over what is led here, as far as the time goes."""
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


def _nobody_cares() -> None:
    return None


async def _nobody_waits(_epoch: int) -> None:
    return None
