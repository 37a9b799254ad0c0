"""Record batches as Arrow columns: the ones of Spark's Kafka connector, whole batches at a time.

Two decoders give the same tables: `plain` asks the row iterator of `penstock.records`, `compiled` has kernels that
Numba turns into machine code. The compiled one refuses what it does not like and leaves the last word to the plain one,
so an error reads the same whoever found it. Needs pyarrow, and numba to be fast: the extra `spark`.
"""

from penstock.spark.columns.decoding import decode, stream
from penstock.spark.columns.errors import UnreadableBatch
from penstock.spark.columns.shape import Wanted, arrow_schema

__all__ = ["UnreadableBatch", "Wanted", "arrow_schema", "decode", "stream"]
