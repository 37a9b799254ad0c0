"""DescribeCluster: the cluster id, the controller and the brokers; on controller listeners, the controllers.

Serves    DescribeCluster 0–2. On broker listeners the brokers that have the listener, with its addresses, and fenced
          ones on request from version 2 on; on controller listeners the voters of the metadata quorum and their leader.
Answers   MISMATCHED_ENDPOINT_TYPE if the request names the other kind of endpoint, UNSUPPORTED_ENDPOINT_TYPE if it
          names neither.
Departs   nowhere from Kafka 4.3.
"""

from penstock.model.errors import ErrorCode
from penstock.server.connections.advertised import AdvertisedBrokers
from penstock.server.connections.serving import Call, serves
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.handlers.topics.metadata import CLUSTER_OPERATIONS
from penstock.server.handlers.topics.metadata_answer import UNTOLD_OPERATIONS
from penstock.server.quorum.quorum_runner import QuorumRunner
from penstock.wire.api import Api
from penstock.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


class DescribeClusterHandler:
    """Describes the brokers or the controllers of the cluster."""

    def __init__(
        self, controller: ControllerRunner, quorum: QuorumRunner, advertised: AdvertisedBrokers, cluster_id: str
    ) -> None:
        self._controller = controller
        self._advertised = advertised
        self._quorum = quorum
        self._cluster_id = cluster_id

    @serves(DescribeClusterRequest)
    async def describe_cluster(self, request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
        """Describes brokers or controllers, depending on the listener."""
        here = CONTROLLERS if Api.ENVELOPE in call.client.routes else BROKERS
        if request.endpoint_type not in (BROKERS, CONTROLLERS):
            sentence = f"Unsupported endpoint type {request.endpoint_type}"
            return _failed(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, sentence)
        if request.endpoint_type != here:
            kinds = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}
            wanted = kinds[request.endpoint_type]
            sentence = (
                f"The request was sent to an endpoint of type {kinds[here]}, but we wanted an endpoint of type {wanted}"
            )
            return _failed(ErrorCode.MISMATCHED_ENDPOINT_TYPE, sentence)
        if here == CONTROLLERS:
            return self._controllers(is_asked=request.include_cluster_authorized_operations)
        controller = self._controller
        is_asked = request.include_cluster_authorized_operations
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            endpoint_type=BROKERS,
            cluster_id=self._cluster_id,
            controller_id=controller.node_id,
            brokers=[
                DescribeClusterBroker(
                    broker_id=broker.broker_id,
                    host=address.host,
                    port=address.port,
                    rack=broker.rack,
                    is_fenced=broker.is_fenced,
                )
                for broker, address in self._advertised.of(controller.image, call.client.listener, call.local)
                if request.include_fenced_brokers or not broker.is_fenced
            ],
            cluster_authorized_operations=CLUSTER_OPERATIONS if is_asked else UNTOLD_OPERATIONS,
        )

    def _controllers(self, *, is_asked: bool) -> DescribeClusterResponse:
        raft = self._quorum.raft
        places = [
            (voter.key.node_id, self._quorum.endpoint_of(voter.key.node_id)) for voter in raft.voters.by_id.values()
        ]
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            endpoint_type=CONTROLLERS,
            cluster_id=self._cluster_id,
            controller_id=raft.leader_id,
            brokers=[
                DescribeClusterBroker(broker_id=node_id, host=place.host, port=place.port, rack=None)
                for node_id, place in places
                if place is not None
            ],
            cluster_authorized_operations=CLUSTER_OPERATIONS if is_asked else UNTOLD_OPERATIONS,
        )


def _failed(code: ErrorCode, sentence: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time_ms=0, error_code=code, error_message=sentence, cluster_id="", brokers=()
    )
