"""WriteTxnMarkers (key 27): the transaction coordinator requests commit or abort markers in partitions."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct, since
from penstock.wire.types import Int8, Int16, Int32, Int64


class WritableTxnMarkerTopic(Struct):
    name: str
    partition_indexes: Sequence[Int32]


class WritableTxnMarker(Struct):
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: bool
    topics: Sequence[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = since(2, default=0, ignorable=True)


class WriteTxnMarkersRequest(Request, key=27, versions="1-2", flexible="1+"):
    markers: Sequence[WritableTxnMarker]


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32
    error_code: ErrorCode


class WritableTxnMarkerTopicResult(Struct):
    name: str
    partitions: Sequence[WritableTxnMarkerPartitionResult]


class WritableTxnMarkerResult(Struct):
    producer_id: Int64
    topics: Sequence[WritableTxnMarkerTopicResult]


class WriteTxnMarkersResponse(Response, key=27, versions="1-2", flexible="1+"):
    markers: Sequence[WritableTxnMarkerResult]
