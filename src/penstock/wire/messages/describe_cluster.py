"""DescribeCluster (key 60): the cluster's id, controller and brokers."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int8, Int32


class DescribeClusterRequest(Request, key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool
    endpoint_type: Int8 = since(1, default=1)
    include_fenced_brokers: bool = since(2, default=False)


class DescribeClusterBroker(Struct):
    broker_id: Int32
    host: str
    port: Int32
    rack: str | None = None
    is_fenced: bool = since(2, default=False)


class DescribeClusterResponse(Response, key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    error_message: str | None = None
    endpoint_type: Int8 = since(1, default=1)
    cluster_id: str
    controller_id: Int32 = -1
    brokers: Sequence[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = -0x80000000
