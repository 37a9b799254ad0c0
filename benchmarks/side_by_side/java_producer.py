"""A load of Kafka's own producer by Kafka's ProducerPerformance: `requests_max` records."""

import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.side_by_side.jobs import Job, told_window
from harness import maven

PROJECT = Path(__file__).parent / "java"
TOOL = "org.apache.kafka.tools.ProducerPerformance"
_SUMMARY = re.compile(
    r"^(\d+) records sent.* ([\d.]+) ms avg latency, [\d.]+ ms max latency, "
    r"(\d+) ms 50th, \d+ ms 95th, (\d+) ms 99th, (\d+) ms 99.9th\.",
    re.MULTILINE,
)


def run(job: Job) -> dict[str, object]:
    """Runs the tool and parses its last summary."""
    library = maven.build(PROJECT) / "lib"
    command = ["java", "-Xmx512M", "-cp", f"{library}/*", TOOL, "--topic", job.topic, "--throughput", "-1"]
    command += ["--num-records", str(job.requests_max), "--record-size", str(job.record_bytes)]
    command += ["--bootstrap-server", job.address, "--command-property"]
    command += [f"{name}={value}" for name, value in {"client.id": "load", **job.settings}.items()]
    told_window()
    begun_s = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = time.monotonic() - begun_s
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    summaries = _SUMMARY.findall(done.stdout)
    if not summaries:
        raise RuntimeError(done.stdout[-1000:] + done.stderr[-1000:])
    count, _, p50, p99, p999 = summaries[-1]
    return {
        "acknowledged": int(count),
        "seconds": seconds,
        "cpu": (used.ru_utime + used.ru_stime) / seconds,
        "ack_ms": {"p50": float(p50), "p99": float(p99), "p999": float(p999)},
    }


if __name__ == "__main__":
    print(json.dumps(run(Job.from_json(sys.argv[1]))))
