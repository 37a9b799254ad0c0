"""Where Spark finds `format("penstock")` by itself: it looks into every module whose name begins with pyspark_."""

from penstock.spark.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
