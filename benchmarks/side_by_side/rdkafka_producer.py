"""A load of librdkafka producers, through confluent-kafka: `requests_max` records in all, by `connections` producers.

With a rate it keeps that rate, and reports the time from the call to the delivery report, linger included; without a
rate, it sends as fast as the process can. Every record must be delivered.
"""

import json
import sys
import time
from array import array
from collections.abc import Sequence
from typing import Any

import confluent_kafka

from benchmarks.side_by_side.jobs import Job, percentiles, told_window
from benchmarks.side_by_side.payload import values

CHUNK = 100
FLUSH_S = 60.0
POLL_S = 0.0002


def run(job: Job) -> dict[str, object]:
    """Sends all records and waits until they are delivered."""
    troubles: list[str] = []
    acks_ns = array("q")

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            troubles.append(str(error))
        else:
            acks_ns.append(int(message.latency() * 1e9))

    settings = {
        "bootstrap.servers": job.address,
        "compression.type": job.codec,
        "delivery.report.only.error": not job.rate,  # millions of callbacks would measure Python
        "on_delivery": delivered,
        **job.settings,
    }
    producers = [confluent_kafka.Producer(settings) for _ in range(job.connections)]
    for each in producers:
        each.list_topics(job.topic, timeout=30)
    kinds = values(job.values, job.record_bytes)
    told_window()
    begun_s, cpu_begun_s = time.monotonic(), time.process_time()
    sent = 0
    while sent < job.requests_max:
        if job.rate:
            _wait_until(begun_s + sent / job.rate, producers)
        producer = producers[sent // CHUNK % len(producers)]
        for number in range(min(CHUNK, job.requests_max - sent)):
            _send(producer, job.topic, kinds[number % len(kinds)])
        sent += min(CHUNK, job.requests_max - sent)
        producer.poll(0)
    left = sum(each.flush(FLUSH_S) for each in producers)
    if left or troubles:
        raise RuntimeError(f"{left} records were not delivered; {troubles[:3]}")
    seconds = time.monotonic() - begun_s
    return {
        "acknowledged": sent,
        "seconds": seconds,
        "cpu": (time.process_time() - cpu_begun_s) / seconds,
        "ack_ms": percentiles(acks_ns) if job.rate else None,
    }


def _wait_until(due_s: float, producers: Sequence[Any]) -> None:
    """Polls for delivery reports meanwhile: a record's latency ends when its report is polled."""
    while time.monotonic() < due_s:
        for each in producers:
            each.poll(0)
        time.sleep(POLL_S)


def _send(producer: Any, topic: str, value: bytes) -> None:
    while True:
        try:
            producer.produce(topic, value)
        except BufferError:
            producer.poll(0.01)
        else:
            return


if __name__ == "__main__":
    print(json.dumps(run(Job.from_json(sys.argv[1]))))
