"""Decodes record batches into the Arrow columns of Spark's Kafka connector, whole batches at a time.

Two decoders give the same tables: `plain` uses the row iterator of `penstock.records`, `compiled` has kernels that
Numba compiles to machine code. Batches that the compiled decoder refuses are decoded by the plain one, so both report
the same errors. Needs pyarrow, and numba to be fast: the extra `spark`.
"""

from penstock.spark.columns.decoding import decode, stream
from penstock.spark.columns.errors import UnreadableBatch
from penstock.spark.columns.shape import RecordRange, arrow_schema

__all__ = ["RecordRange", "UnreadableBatch", "arrow_schema", "decode", "stream"]
