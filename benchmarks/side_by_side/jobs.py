"""What a load process is told and what it tells: a job, "ready", a window, results; all but one of them JSON.

A process runs on the load's cores. It connects, makes its requests and says that it is ready; when all are, all are
told the window that counts, on the machine's monotonic clock, which they share.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NoReturn

from benchmarks.side_by_side.machine import ROOT, pinned
from penstock.records.compression import Codec

GRACE_S = 60.0
READY = b"ready\n"

FOLLOWERS = 4
"""Connections on which a paced load reads what it wrote."""


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
    window: Window = Window(0.0, 0.0)
    """Told later than the rest."""
    connections: int = 1
    in_flight: int = 5
    record_bytes: int = 100
    batch_bytes: int = 64 * 1024
    """Before compression; a batch holds one record at least."""
    codec: str = "none"
    values: str = "random"
    """`random` bytes, `mixed` in their length, or `json` documents."""
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

    def at_place(self, connection: int) -> "tuple[str, Job, int]":
        """Where a connection goes, what it is told there, and its number there; several brokers take turns."""
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
    """A load process ended badly; the text is what it said."""


class Load:
    """Running processes of a load."""

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
        """Waits until all are ready, and tells them when it counts."""
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
        """Whether a process has ended badly."""
        return any(process.poll() for process in self._processes)

    def results(self) -> list[dict[str, Any]]:
        """What each process tells at its end."""
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
        """Ends what still runs."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


def told_window() -> Window:
    """In a load process: says that it is ready and waits for the word."""
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    return Window(**json.loads(sys.stdin.readline()))


def percentiles(latencies_ns: "Sequence[int]") -> dict[str, float | None]:
    """p50, p99 and p99.9 in milliseconds; None where there are too few to tell."""
    ordered = sorted(latencies_ns)
    found: dict[str, float | None] = {}
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
        enough = len(ordered) * (1 - share) >= 1
        found[name] = round(ordered[int(len(ordered) * share)] / 1e6, 4) if enough else None
    return found
