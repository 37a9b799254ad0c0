"""Keys and values in `__transaction_state`: one record per change of a transactional id."""

from collections.abc import Sequence

from penstock.wire.declare import StoredKey, StoredValue, Struct, tagged
from penstock.wire.types import Int8, Int16, Int32, Int64


class TransactionLogKey(StoredKey, type=0, versions="0"):
    transactional_id: str


class PartitionsSchema(Struct):
    topic: str
    partition_ids: Sequence[Int32]


class TransactionLogValue(StoredValue, type=0, versions="0-1", flexible="1+"):
    producer_id: Int64
    previous_producer_id: Int64 = tagged(0, since=1, default=-1)
    next_producer_id: Int64 = tagged(1, since=1, default=-1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = tagged(3, since=1, default=-1)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: Sequence[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = tagged(2, since=1, default=0)
