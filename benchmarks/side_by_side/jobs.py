"""The protocol with a load process: a job, "ready", a window, results; all but "ready" are JSON.

A load process runs on the load's cores. It connects, encodes its requests and reports that it is ready; when all are
ready, all receive the measured window, on the machine's monotonic clock, which they share.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NoReturn

from harness.machine import ROOT, pinned
from penstock.records.compression import Codec

GRACE_S = 60.0
READY = b"ready\n"

FOLLOWERS = 4
"""Connections on which a paced load reads its own records."""


@dataclass(frozen=True, slots=True)
class Window:
    """The measured time."""

    begin_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        """The length of the window."""
        return self.end_s - self.begin_s


@dataclass(frozen=True, slots=True)
class Job:
    """A load. Not every kind of load uses every field."""

    address: str
    topic: str
    topic_id: str
    """In hexadecimal digits."""
    partitions: int
    window: Window = Window(0.0, 0.0)
    """Sent later than the other fields."""
    connections: int = 1
    in_flight: int = 5
    record_bytes: int = 100
    batch_bytes: int = 64 * 1024
    """Size before compression; a batch has at least one record."""
    codec: str = "none"
    values: str = "random"
    """`random` bytes, `mixed` in their length, or `json` documents."""
    rate: float = 0.0
    """Requests per second, for paced loads."""
    follows: bool = False
    """Whether a paced load also reads its own records, to measure end-to-end latency."""
    requests_max: int = 0
    """The number of requests after which a load that fills a topic ends; 0 means no bound."""
    fetch_bytes: int = 4 * 1024 * 1024
    is_replay: bool = False
    """Whether a reader stops at the end instead of restarting at offset 0."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Encodes the job as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """Decodes a job from JSON."""
        fields = json.loads(text)
        return cls(**{**fields, "window": Window(**fields["window"])})

    def at_place(self, connection: int) -> "tuple[str, Job, int]":
        """Address, job and per-broker number of a connection; connections alternate between several brokers."""
        places = self.settings.get("places")
        if not places:
            return self.address, self, connection
        address, topic_id = places[connection % len(places)]
        share = replace(self, topic_id=topic_id, connections=self.connections // len(places))
        return address, share, connection // len(places)

    @property
    def kind_of_codec(self) -> Codec:
        """The codec."""
        return Codec[self.codec.upper()]


class LoadFailed(Exception):
    """A load process failed; the text is the end of its standard error."""


class Load:
    """The running processes of a load."""

    def __init__(self, work: Sequence[tuple[str, Job]], cpus: Sequence[int]) -> None:
        with pinned(cpus):
            self._processes = [
                subprocess.Popen(
                    [sys.executable, "-m", f"benchmarks.side_by_side.{kind}", job.to_json()],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
                for kind, job in work
            ]

    def begin(self, lead_s: float, seconds: float) -> Window:
        """Waits until all processes are ready, and sends them the window."""
        for process in self._processes:
            assert process.stdout is not None
            if process.stdout.readline() != READY:
                self._fail(process)
        now_s = time.monotonic()
        self._window = Window(now_s + lead_s, now_s + lead_s + seconds)
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps(asdict(self._window)).encode() + b"\n")
            process.stdin.flush()
        return self._window

    @property
    def has_failed(self) -> bool:
        """Whether a process has failed."""
        return any(process.poll() for process in self._processes)

    def results(self) -> list[dict[str, Any]]:
        """The results that the processes report at their end."""
        found = []
        try:
            for process in self._processes:
                left_s = self._window.end_s - time.monotonic() + GRACE_S
                out, complaints = process.communicate(timeout=max(1.0, left_s))
                if process.returncode:
                    raise LoadFailed(complaints.decode(errors="replace")[-2000:])
                found.append(json.loads(out))
        finally:
            self.stop()
        return found

    def _fail(self, process: "subprocess.Popen[bytes]") -> NoReturn:
        process.kill()
        _, complaints = process.communicate()
        self.stop()
        raise LoadFailed(complaints.decode(errors="replace")[-2000:])

    def stop(self) -> None:
        """Kills the processes that still run."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


def told_window() -> Window:
    """In a load process: reports that it is ready and waits for the window."""
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    return Window(**json.loads(sys.stdin.readline()))


def percentiles(latencies_ns: "Sequence[int]") -> dict[str, float | None]:
    """p50, p99 and p99.9 in milliseconds; None where there are too few values."""
    ordered = sorted(latencies_ns)
    found: dict[str, float | None] = {}
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
        enough = len(ordered) * (1 - share) >= 1
        found[name] = round(ordered[int(len(ordered) * share)] / 1e6, 4) if enough else None
    return found
