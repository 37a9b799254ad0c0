"""What a load process is told and what it tells: one JSON document each way. It runs on the load's cores.

All processes of a load measure the same window of the machine's monotonic clock, which they share.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.side_by_side.machine import ROOT, pinned
from penstock.records.compression import Codec

GRACE_S = 60.0


@dataclass(frozen=True, slots=True)
class Window:
    """The time that counts."""

    begin_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end_s - self.begin_s


@dataclass(frozen=True, slots=True)
class Job:
    """A load. Not every kind of load heeds every field."""

    address: str
    topic: str
    topic_id: str
    """In hexadecimal digits."""
    partitions: int
    window: Window
    connections: int = 1
    in_flight: int = 5
    record_bytes: int = 100
    batch_bytes: int = 64 * 1024
    """Before compression; a batch holds one record at least."""
    codec: str = "none"
    values: str = "random"
    """`random` bytes, or `json` documents."""
    rate: float = 0.0
    """Requests in a second, for loads that keep a pace."""
    follows: bool = False
    """Whether a paced load also reads what it wrote, to measure from end to end."""
    requests_max: int = 0
    """A load that is to fill a topic ends after so many; 0 is no bound."""
    fetch_bytes: int = 4 * 1024 * 1024
    is_replay: bool = False
    """Whether a reader stops at the end instead of beginning anew."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """From text."""
        fields = json.loads(text)
        return cls(**{**fields, "window": Window(**fields["window"])})

    @property
    def kind_of_codec(self) -> Codec:
        """The codec."""
        return Codec[self.codec.upper()]


class LoadFailed(Exception):
    """A load process ended badly; the text is what it said."""


class Load:
    """Running processes of a load."""

    def __init__(self, work: Sequence[tuple[str, Job]], cpus: Sequence[int]) -> None:
        self._jobs = [job for _, job in work]
        with pinned(cpus):
            self._processes = [
                subprocess.Popen(
                    [sys.executable, "-m", f"benchmarks.side_by_side.{kind}", job.to_json()],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
                for kind, job in work
            ]

    def results(self) -> list[dict[str, Any]]:
        """What each process tells at its end."""
        found = []
        try:
            for process, job in zip(self._processes, self._jobs, strict=True):
                left_s = job.window.end_s - time.monotonic() + GRACE_S
                out, complaints = process.communicate(timeout=max(1.0, left_s))
                if process.returncode:
                    raise LoadFailed(complaints.decode(errors="replace")[-2000:])
                found.append(json.loads(out))
        finally:
            self.stop()
        return found

    def stop(self) -> None:
        """Ends what still runs."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


def check_in_time(job: Job) -> None:
    """A load that begins inside its window would measure its own start."""
    if not job.requests_max and time.monotonic() > job.window.begin_s:
        raise TimeoutError("the load was not ready when its window began: the machine is too busy, or --lead too short")


def percentiles(latencies_ns: "Sequence[int]") -> dict[str, float | None]:
    """p50, p99 and p99.9 in milliseconds; None where there are too few to tell."""
    ordered = sorted(latencies_ns)
    found: dict[str, float | None] = {}
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
        enough = len(ordered) * (1 - share) >= 1
        found[name] = round(ordered[int(len(ordered) * share)] / 1e6, 4) if enough else None
    return found
