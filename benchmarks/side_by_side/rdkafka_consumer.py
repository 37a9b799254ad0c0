"""A load of librdkafka consumers, through confluent-kafka: `connections` of them share the partitions by assignment.

They read from the start until `requests_max` records were read. End-to-end latency is the time from the producer's
timestamp, in milliseconds, to the return of `consume` in Python, for the last record of every returned list.
"""

import json
import sys
import time
from array import array
from typing import Any

import confluent_kafka

from benchmarks.side_by_side.jobs import GRACE_S, Job, percentiles, told_window

CHUNK = 500


def run(job: Job) -> dict[str, object]:
    """Reads all records."""
    settings = {
        "bootstrap.servers": job.address,
        "group.id": "unused",
        "enable.auto.commit": False,
        "check.crcs": True,
        "auto.offset.reset": "earliest",
        **job.settings,
    }
    consumers = []
    for number in range(job.connections):
        consumer = confluent_kafka.Consumer(settings)
        places = range(number, job.partitions, job.connections)
        consumer.assign([confluent_kafka.TopicPartition(job.topic, each, 0) for each in places])
        consumers.append(consumer)
    deadline_s = told_window().end_s + GRACE_S / 2
    cpu_begun_s, begun_s = time.process_time(), time.monotonic()
    delays_ns = array("q")
    read = size_bytes = 0
    while read < job.requests_max:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{read} of {job.requests_max} records were read in time")
        for consumer in consumers:
            messages: list[Any] = consumer.consume(CHUNK, 0.002)
            if not messages:
                continue
            for message in messages:
                if message.error() is not None:
                    raise RuntimeError(message.error())
                size_bytes += len(message.value())
            read += len(messages)
            _, stamp_ms = messages[-1].timestamp()
            delays_ns.append(max(0, time.time_ns() - stamp_ms * 1_000_000))
    seconds = time.monotonic() - begun_s
    cpu = (time.process_time() - cpu_begun_s) / seconds
    for consumer in consumers:
        consumer.close()
    return {"read": read, "value_bytes": size_bytes, "cpu": cpu, "end_to_end_ms": percentiles(delays_ns)}


if __name__ == "__main__":
    print(json.dumps(run(Job.from_json(sys.argv[1]))))
