"""The requested records, and the columns of the result: names and types of Spark's Kafka connector.

The Arrow schema must equal the one that PySpark derives for the same columns, down to the name of a list's element and
to nullability: Spark compares them, and refuses a data source whose batches differ.
"""

from typing import NamedTuple

import pyarrow as pa

# Greater timestamps, in milliseconds, do not fit into a 64-bit number of microseconds.
TIMESTAMP_MS_MAX = (2**63 - 1) // 1000

HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))

_WITHOUT_HEADERS = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
)
_WITH_HEADERS = _WITHOUT_HEADERS.append(pa.field("headers", HEADERS))


class RecordRange(NamedTuple):
    """Which records of which partition are wanted: `first <= offset < end`."""

    topic: str
    partition: int
    first: int
    end: int
    has_headers: bool = False


def arrow_schema(has_headers: bool) -> pa.Schema:
    """The columns, with or without the headers as the last of them."""
    return _WITH_HEADERS if has_headers else _WITHOUT_HEADERS
