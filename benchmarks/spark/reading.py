"""Reads many records of 100 bytes, eight columns, two cores: our source, the connector and the bare engine in turn."""

import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from benchmarks.spark import payload, sessions
from harness.penstock_node import PenstockNode
from penstock.client.blocking import SyncClient

TOPIC = "records"
PARTITIONS = 4
TASKS = 4


def measure(directory: Path, rounds: int, records: int) -> dict[str, Any]:
    """Seconds of each round by contender."""
    with PenstockNode(directory) as node:
        with SyncClient(node.bootstrap) as client:
            client.create_topic(TOPIC, PARTITIONS)
        payload.produce(node.bootstrap, TOPIC, payload.plain(records, PARTITIONS))
        session = sessions.start()
        try:
            frames = {form: sessions.batch(session, form, node.bootstrap, TOPIC) for form in sessions.FORMATS}
            frames["bare"] = session.read.format("bare").options(rows=str(records), tasks=str(TASKS)).load()
            _check(frames, records)
            found: dict[str, list[float]] = {form: [] for form in frames}
            for number in range(rounds + 1):
                for form, frame in frames.items():
                    began_s = time.perf_counter()
                    sessions.run(frame)
                    took_s = time.perf_counter() - began_s
                    if number:  # the first round warms up
                        found[form].append(took_s)
                        print(f"{form:9} {took_s:6.2f} s {records / took_s / 1e6:5.2f} M records/s", flush=True)
        finally:
            session.stop()
    return {"records": records, "value_bytes": payload.VALUE_BYTES, "partitions": PARTITIONS, "seconds": found}


def _check(frames: dict[str, DataFrame], records: int) -> None:
    """Checks that both sources read the same records, so that their speeds are comparable."""
    summed = [
        frames[form]
        .agg(
            f.count("*"),
            f.sum("offset"),
            f.sum(f.length("value")),
            f.sum(f.xxhash64("key", "value", "timestamp") % 1000),
        )
        .first()
        for form in sessions.FORMATS
    ]
    assert summed[0] == summed[1]
    assert summed[0][0] == records
    assert frames["bare"].count() == records
    assert frames["bare"].columns == frames["kafka"].columns
