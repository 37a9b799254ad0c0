"""Memory of an executor that reads a batch of 20 GB of text, zstd, half of it in one partition.

One executor has both cores, so that two tasks read at a time, and Spark's default of 1 GB of heap. The figure is the
peak of the resident memory of JVM, Python's daemon and its workers together; pages that they share count for each of
them.
"""

import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.spark import payload, sessions
from harness import machine
from harness.penstock_node import PenstockNode
from harness.spark.standalone import StandaloneSpark
from penstock.client.blocking import SyncClient

TOPIC = "lines"
PARTITIONS = 5
LINE_BYTES = 1000
SAMPLE_S = 0.1


class Watch(threading.Thread):
    """Samples the executors' memory until it is stopped."""

    def __init__(self, cluster: StandaloneSpark) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._done = threading.Event()
        self.peak_bytes = 0
        self.peak_parts: dict[str, int] = {}

    def run(self) -> None:
        """Keeps the peak of an executor, and its parts by process."""
        while not self._done.wait(SAMPLE_S):
            for pid in self._cluster.executors():
                parts = machine.resident_parts(pid)
                if sum(parts.values()) > self.peak_bytes:
                    self.peak_bytes = sum(parts.values())
                    self.peak_parts = parts

    def stop(self) -> None:
        """Stops sampling; no sample is taken after this returns."""
        self._done.set()
        self.join()


def measure(directory: Path, size_bytes: int) -> dict[str, Any]:
    """Peak memory and speed of one batch."""
    with PenstockNode(directory) as node:
        with SyncClient(node.bootstrap) as client:
            client.create_topic(TOPIC, PARTITIONS)
        began_s = time.perf_counter()
        text = payload.lines(size_bytes, LINE_BYTES, PARTITIONS)
        records = payload.produce(node.bootstrap, TOPIC, text, compression_type="zstd", batch_size=900_000)
        print(f"wrote {records:,} records in {time.perf_counter() - began_s:.0f} s", flush=True)
        with StandaloneSpark(directory / "cluster", workers=1, cores=2, memory="2g") as cluster:
            session = sessions.start(cluster.url)
            try:
                frame = sessions.batch(session, "penstock", node.bootstrap, TOPIC)
                tasks = frame._jdf.queryExecution().toRdd().getNumPartitions()
                watch = Watch(cluster)
                watch.start()
                began_s = time.perf_counter()
                counted = frame.selectExpr("count(*)", "sum(length(value))").first()
                took_s = time.perf_counter() - began_s
                watch.stop()
            finally:
                session.stop()
    assert counted == (records, records * LINE_BYTES), f"{counted} instead of {records}"
    mb = {name: found // 10**6 for name, found in watch.peak_parts.items()}
    print(f"read in {took_s:.0f} s by {tasks} tasks, at most {watch.peak_bytes / 1e6:.0f} MB: {mb}", flush=True)
    return {
        "bytes": records * LINE_BYTES,
        "records": records,
        "tasks": tasks,
        "seconds": took_s,
        "peak_mb": watch.peak_bytes / 1e6,
        "peak_parts_mb": mb,
    }
