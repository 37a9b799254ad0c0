"""A load of librdkafka producers, through confluent-kafka: `requests_max` records in all, by `connections` producers.

With a rate it keeps that pace; without, it sends as fast as the process can. Every record must be delivered.
"""

import json
import sys
import time
from typing import Any

import confluent_kafka

from benchmarks.side_by_side.jobs import Job, told_window
from benchmarks.side_by_side.payload import values

CHUNK = 100
FLUSH_S = 60.0


def run(job: Job) -> dict[str, object]:
    """Sends everything and waits until it is delivered."""
    troubles: list[str] = []

    def failed(error: Any, _message: Any) -> None:
        troubles.append(str(error))

    settings = {
        "bootstrap.servers": job.address,
        "compression.type": job.codec,
        "delivery.report.only.error": True,  # who counts millions in Python measures Python
        "on_delivery": failed,
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
        if job.rate and (ahead_s := sent / job.rate - (time.monotonic() - begun_s)) > 0:
            time.sleep(ahead_s)
        producer = producers[sent // CHUNK % len(producers)]
        for number in range(min(CHUNK, job.requests_max - sent)):
            _send(producer, job.topic, kinds[number % len(kinds)])
        sent += min(CHUNK, job.requests_max - sent)
        producer.poll(0)
    left = sum(each.flush(FLUSH_S) for each in producers)
    if left or troubles:
        raise RuntimeError(f"{left} records were not delivered; {troubles[:3]}")
    seconds = time.monotonic() - begun_s
    return {"acknowledged": sent, "seconds": seconds, "cpu": (time.process_time() - cpu_begun_s) / seconds}


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
