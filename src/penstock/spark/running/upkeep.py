"""Joins small files while the streams are idle: one task at a time, and none starts while a batch runs."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock.spark.lake.compaction import Group, compact, join
from penstock.spark.lake.table import DataFile, open_table, stored_schema
from penstock.spark.project.plan import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAUSE_S_MAX = 60.0
POOL = "spark.scheduler.pool"

log = logging.getLogger("penstock.spark")


class Upkeep:
    """A thread that joins files in rounds. `is_calm` returns whether a pipeline's stream is idle."""

    def __init__(self, spark: "SparkSession", lakes: list[Lake], is_calm: Callable[[str], bool]) -> None:
        self._spark = spark
        self._lakes = [each for each in lakes if each.target.compact.is_on]
        self._is_calm = is_calm
        quiet_ms = min((each.target.compact.quiet_ms for each in self._lakes), default=0)
        self._pause_s = min(PAUSE_S_MAX, quiet_ms / 1000)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-upkeep", daemon=True)
        if self._lakes:
            self._thread.start()

    def close(self) -> None:
        """Stops the thread, without waiting for files being joined."""
        self._over.set()

    def _run(self) -> None:
        self._spark.sparkContext.setLocalProperty(POOL, "upkeep")
        while not self._over.wait(self._pause_s):
            for lake in self._lakes:
                try:
                    self.round(lake)
                except Exception:
                    log.warning("%s: small files stay for now", lake.name, exc_info=True)

    def round(self, lake: Lake) -> None:
        """Joins the files of a table once."""
        target = lake.target
        done = compact(
            target.uri,
            now_ms=time.time_ns() // 1_000_000,
            quiet_ms=target.compact.quiet_ms,
            file_bytes=target.file_bytes,
            run=partial(self._joined, lake),
            may_go_on=lambda: not self._over.is_set() and self._is_calm(lake.name),
        )
        if done.before:
            log.info("%s: %d small files became %d", lake.name, done.before, done.after)

    def _joined(self, lake: Lake, group: Group) -> list[DataFile]:
        table = open_table(lake.target.uri)
        assert table is not None, "there are files to join"
        work = partial(join, lake.target.uri, stored_schema(table), is_by_day=lake.target.is_by_day)
        found: list[list[DataFile]] = self._spark.sparkContext.parallelize([group], 1).map(work).collect()
        return found[0]
