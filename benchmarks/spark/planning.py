"""The cost of planning: micro-batches over 1,000 nearly empty partitions, and very many splits."""

import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from benchmarks.spark import payload, sessions
from harness.penstock_node import PenstockNode
from penstock.client.blocking import SyncClient

PARTITIONS = 1000
FEW = 20
TURNS = 3


def measure_micro_batches(directory: Path, rounds: int) -> dict[str, Any]:
    """Milliseconds of micro-batches by contender: with few records, and with one for each partition.

    Contenders run one after the other, each with a topic of its own: an idle stream polls the broker all the time, and
    a restarted stream catches up first. The connector makes a task of each partition with new records, which takes half
    a second: over all partitions, a trigger lasts minutes, so that case is left out.
    """
    sizes = {"penstock": (FEW, PARTITIONS), "kafka": (FEW,)}
    found: dict[str, dict[int, list[float]]] = {form: {FEW: [], PARTITIONS: []} for form in sizes}
    with PenstockNode(directory) as node:
        session = sessions.start()
        try:
            for form, counts in sizes.items():
                with SyncClient(node.bootstrap) as client:
                    client.create_topic(form, PARTITIONS)
                query = _stream(session, form, node.bootstrap, directory / form)
                for number in range(rounds + 1):
                    for records in counts:
                        took_ms = [_micro_batch(query, node.bootstrap, form, records) for _ in range(TURNS)]
                        print(f"{form:9} {records:5} records", [round(each) for each in took_ms], flush=True)
                        if number:
                            found[form][records] += took_ms
                query.stop()
        finally:
            session.stop()
    few, one_each = ({form: each[count] for form, each in found.items()} for count in (FEW, PARTITIONS))
    return {"partitions": PARTITIONS, "few": FEW, "few_ms": few, "one_each_ms": one_each}


def _stream(session: SparkSession, form: str, bootstrap: str, checkpoint: Path) -> StreamingQuery:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": form, "startingOffsets": "earliest"}
    frame = session.readStream.format(form).options(**options).load()
    return frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()


def _micro_batch(query: StreamingQuery, bootstrap: str, topic: str, records: int) -> float:
    """Produces records; returns the milliseconds of the longest trigger that read any of them."""
    before = query.lastProgress["batchId"] if query.lastProgress else -1
    spread = ((None, b"x", number * 37 % PARTITIONS, 0) for number in range(records))
    payload.produce(bootstrap, topic, spread, linger_ms=5)
    query.processAllAvailable()
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        new = [each for each in query.recentProgress if each["batchId"] > before and each["numInputRows"]]
        if sum(each["numInputRows"] for each in new) == records:
            return float(max(each["durationMs"]["triggerExecution"] for each in new))
        time.sleep(0.05)  # progress is reported shortly after the batch
    raise AssertionError(f"{records} records were written, and the stream told of {new}")


def measure_splits(directory: Path, rounds: int, splits: int) -> dict[str, Any]:
    """Seconds until Spark has planned the splits of a batch, by contender."""
    with PenstockNode(directory) as node:
        with SyncClient(node.bootstrap) as client:
            client.create_topic("one", 1)
        payload.produce(node.bootstrap, "one", ((None, b"x", 0, 0) for _ in range(splits)))
        session = sessions.start(spark_driver_memory="2g")
        try:
            found: dict[str, list[float]] = {form: [] for form in sessions.FORMATS}
            for number in range(rounds + 1):
                for form in sessions.FORMATS:
                    began_s = time.perf_counter()
                    # Without minPartitions the connector ignores maxRecordsPerPartition in a batch.
                    wanted = {"minPartitions": str(splits), "maxRecordsPerPartition": "1"}
                    frame = sessions.batch(session, form, node.bootstrap, "one", **wanted)
                    planned = frame._jdf.queryExecution().toRdd().getNumPartitions()
                    took_s = time.perf_counter() - began_s
                    assert planned == splits, f"{form} made {planned} splits"
                    if number:
                        found[form].append(took_s)
                        print(f"{form:9} {took_s:6.2f} s", flush=True)
        finally:
            session.stop()
    return {"splits": splits, "seconds": found}
