"""DescribeCluster: the cluster's id, its controller and its brokers; or its controllers, where those listen.

Serves    DescribeCluster 0–2, for brokers; fenced ones on request, from version 2 on. On listeners of controllers the
          voters of the metadata quorum, and which of them leads.
Answers   MISMATCHED_ENDPOINT_TYPE when the others are asked for, UNSUPPORTED_ENDPOINT_TYPE for what is neither.
Departs   nowhere from Kafka 4.3.
"""

from penstock.model.errors import ErrorCode
from penstock.server.advertised import brokers_for
from penstock.server.handlers.metadata import CLUSTER_OPERATIONS
from penstock.server.handlers.needs import Needs, node_of
from penstock.server.metadata_answer import UNTOLD_OPERATIONS
from penstock.server.serving import Call, serves
from penstock.wire.api import Api
from penstock.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


@serves(DescribeClusterRequest)
async def describe_cluster(request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
    """Tells who is there."""
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
    node = node_of(call)
    if here == CONTROLLERS:
        return _controllers(node, is_asked=request.include_cluster_authorized_operations)
    controller = node.controller
    is_asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        endpoint_type=BROKERS,
        cluster_id=node.directory.identity["cluster_id"],
        controller_id=controller.node_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.broker_id,
                host=address.host,
                port=address.port,
                rack=broker.rack,
                is_fenced=broker.is_fenced,
            )
            for broker, address in brokers_for(controller.image, controller.settings, controller.node_id, call.local)
            if request.include_fenced_brokers or not broker.is_fenced
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS if is_asked else UNTOLD_OPERATIONS,
    )


def _controllers(node: Needs, *, is_asked: bool) -> DescribeClusterResponse:
    raft = node.quorum.raft
    places = [(voter.key.node_id, node.quorum.endpoint_of(voter.key.node_id)) for voter in raft.voters.by_id.values()]
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        endpoint_type=CONTROLLERS,
        cluster_id=node.directory.identity["cluster_id"],
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
