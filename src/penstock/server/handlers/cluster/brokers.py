"""BrokerRegistration, BrokerHeartbeat, UnregisterBroker and others: requests of nodes to the active controller.

Serves    BrokerRegistration 0–4, BrokerHeartbeat 0–2, ControllerRegistration 0, AllocateProducerIds 0 on controller
          listeners; UnregisterBroker 0 on all listeners.
Answers   NOT_CONTROLLER if this node is not the active controller; INCONSISTENT_CLUSTER_ID to a broker of another
          cluster; BROKER_ID_NOT_REGISTERED to a ZooKeeper broker; other codes are the controller's. A broker is
          registered again or unregistered once its partitions are handed over; the response waits for that.
Departs   from Kafka 4.3: when a broker's heartbeat connection closes, the controller probes the broker at once, and
          fences it if the connection is refused. Offline directories may come back online without a restart, for
          example when space is freed on a full disk. More than 1,000 listeners, features or directories of one node
          (ENTRIES_MAX) are INVALID_REQUEST.
"""

from collections.abc import Sized
from functools import partial
from typing import Final

from penstock.metadata.cluster_commands import Heartbeat, RegisterController, Result, UnregisterBroker
from penstock.metadata.commands import AllocateProducerIds, RegisterBroker
from penstock.metadata.records import BrokerEndpoint, BrokerFeature, ControllerEndpoint, ControllerFeature
from penstock.model.errors import ErrorCode, ProtocolError
from penstock.server.connections.peer_connections import recognize_broker
from penstock.server.connections.serving import Call, serves
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.controller.probes import Probes
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from penstock.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from penstock.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

PIECES_MAX = 10_000
"""Maximum number of pieces in which a broker's partitions are handed over."""
ENTRIES_MAX: Final = 1_000
"""Maximum number of listeners, features or directories of one node."""


def _has_too_many(*entries: Sized) -> bool:
    return any(len(each) > ENTRIES_MAX for each in entries)


class BrokersHandler:
    """Registers and unregisters nodes at the controller, and renews the sessions of brokers."""

    def __init__(self, controller: ControllerRunner, probes: Probes, cluster_id: str) -> None:
        self._controller = controller
        self._probes = probes
        self._cluster_id = cluster_id

    @serves(BrokerRegistrationRequest)
    async def broker_registration(self, request: BrokerRegistrationRequest, call: Call) -> BrokerRegistrationResponse:
        """Registers a broker."""
        if request.cluster_id != self._cluster_id:
            return BrokerRegistrationResponse(throttle_time_ms=0, error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if _has_too_many(request.listeners, request.features, request.log_dirs):
            return BrokerRegistrationResponse(throttle_time_ms=0, error_code=ErrorCode.INVALID_REQUEST)
        if request.is_migrating_zk_broker:
            return BrokerRegistrationResponse(throttle_time_ms=0, error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
        controller = self._controller
        for _ in range(PIECES_MAX):
            command = RegisterBroker(
                broker_id=request.broker_id,
                incarnation_id=request.incarnation_id,
                epoch=controller.end_offset,
                listeners=tuple(
                    BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                    for e in request.listeners
                ),
                features=tuple(
                    BrokerFeature(
                        name=f.name,
                        min_supported_version=f.min_supported_version,
                        max_supported_version=f.max_supported_version,
                    )
                    for f in request.features
                ),
                rack=request.rack,
                log_dirs=tuple(request.log_dirs),
                is_fenced=True,
                previous_epoch=request.previous_broker_epoch,
            )
            try:
                registered = await controller.ask(command)
            except ProtocolError as error:
                return BrokerRegistrationResponse(throttle_time_ms=0, error_code=error.code)
            if registered.code is not ErrorCode.REQUEST_TIMED_OUT:
                break
        if not registered.code:
            call.client.recognize()
        return BrokerRegistrationResponse(
            throttle_time_ms=0, error_code=registered.code, broker_epoch=-1 if registered.code else registered.epoch
        )

    @serves(BrokerHeartbeatRequest)
    async def broker_heartbeat(self, request: BrokerHeartbeatRequest, call: Call) -> BrokerHeartbeatResponse:
        """Renews a broker's session before any other work (R34)."""
        if _has_too_many(request.offline_log_dirs):
            return BrokerHeartbeatResponse(
                throttle_time_ms=0, error_code=ErrorCode.INVALID_REQUEST, should_shut_down=False
            )
        controller = self._controller
        recognize_broker(call.client, controller.image, request.broker_id, request.broker_epoch)
        command = Heartbeat(
            request.broker_id,
            request.broker_epoch,
            request.current_metadata_offset,
            controller.end_offset,
            request.want_fence,
            request.want_shut_down,
            tuple(request.offline_log_dirs),
        )
        call.client.on_end = partial(self._probes.begin, request.broker_id, request.broker_epoch)
        try:
            heard = await controller.heartbeat(command)
        except ProtocolError as error:
            return BrokerHeartbeatResponse(throttle_time_ms=0, error_code=error.code, should_shut_down=False)
        return BrokerHeartbeatResponse(
            throttle_time_ms=0,
            error_code=heard.code,
            is_caught_up=heard.is_caught_up,
            is_fenced=heard.is_fenced,
            should_shut_down=heard.should_shut_down,
        )

    @serves(UnregisterBrokerRequest, is_for_controller=True)
    async def unregister_broker(self, request: UnregisterBrokerRequest, _call: Call) -> UnregisterBrokerResponse:
        """Unregisters a broker; one with many partitions in pieces."""
        result = Result()
        for _ in range(PIECES_MAX):
            try:
                result = await self._controller.ask(UnregisterBroker(request.broker_id))
            except ProtocolError as error:
                result = Result(error.code, str(error))
            if result.code is not ErrorCode.REQUEST_TIMED_OUT:
                break
        return UnregisterBrokerResponse(throttle_time_ms=0, error_code=result.code, error_message=result.message)

    @serves(ControllerRegistrationRequest)
    async def controller_registration(
        self, request: ControllerRegistrationRequest, _call: Call
    ) -> ControllerRegistrationResponse:
        """Registers a controller with its listeners and features."""
        if _has_too_many(request.listeners, request.features):
            message = f"more than {ENTRIES_MAX} listeners or features"
            return ControllerRegistrationResponse(
                throttle_time_ms=0, error_code=ErrorCode.INVALID_REQUEST, error_message=message
            )
        command = RegisterController(
            request.controller_id,
            request.incarnation_id,
            tuple(
                ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in request.listeners
            ),
            tuple(
                ControllerFeature(
                    name=f.name,
                    min_supported_version=f.min_supported_version,
                    max_supported_version=f.max_supported_version,
                )
                for f in request.features
            ),
        )
        try:
            result = await self._controller.ask(command)
        except ProtocolError as error:
            result = Result(error.code, str(error))
        return ControllerRegistrationResponse(throttle_time_ms=0, error_code=result.code, error_message=result.message)

    @serves(AllocateProducerIdsRequest)
    async def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, call: Call
    ) -> AllocateProducerIdsResponse:
        """Allocates a block of producer ids to a broker."""
        controller = self._controller
        recognize_broker(call.client, controller.image, request.broker_id, request.broker_epoch)
        try:
            block = await controller.ask(AllocateProducerIds(request.broker_id, request.broker_epoch))
        except ProtocolError as error:
            return AllocateProducerIdsResponse(
                throttle_time_ms=0, error_code=error.code, producer_id_start=-1, producer_id_len=0
            )
        return AllocateProducerIdsResponse(
            throttle_time_ms=0, error_code=block.code, producer_id_start=block.first, producer_id_len=block.count
        )
