"""DescribeCluster: the cluster's id, its controller and its brokers.

Serves    DescribeCluster 0–2, for brokers; fenced ones on request, from version 2 on.
Answers   MISMATCHED_ENDPOINT_TYPE when the controllers are asked for, UNSUPPORTED_ENDPOINT_TYPE for what is neither.
Departs   nowhere from Kafka 4.3.
"""

from penstock.model.errors import ErrorCode
from penstock.server.advertised import brokers_for
from penstock.server.handlers.metadata import CLUSTER_OPERATIONS
from penstock.server.handlers.needs import node_of
from penstock.server.metadata_answer import UNTOLD_OPERATIONS
from penstock.server.serving import Call, serves
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
    if request.endpoint_type == CONTROLLERS:
        sentence = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return _failed(ErrorCode.MISMATCHED_ENDPOINT_TYPE, sentence)
    if request.endpoint_type != BROKERS:
        sentence = f"Unsupported endpoint type {request.endpoint_type}"
        return _failed(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, sentence)
    node = node_of(call)
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


def _failed(code: ErrorCode, sentence: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time_ms=0, error_code=code, error_message=sentence, cluster_id="", brokers=()
    )
