"""Profiles a broker during a round: py-spy samples the Python process from outside.

Profiled rounds are slower than others and are never recorded.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.side_by_side.brokers import Broker
from benchmarks.side_by_side.loads import Conditions

RATE_HZ = 200
TOP = 15
START_S = 1.0
"""Approximate time until a load is ready."""


# Innermost frames of idle threads, which py-spy sometimes counts as active.
WAITING = ("EpollSelector.select ", "_worker (concurrent/", "ThreadWorkers._work ")


def _is_ours(frame: str) -> bool:
    return "(penstock/" in frame and "(penstock/cli/" not in frame


class Profiler:
    """Records the stacks of a round and prints the top functions; without a folder it does nothing."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self._folder = folder
        self._name = name

    @contextmanager
    def around(self, broker: Broker, conditions: Conditions) -> Iterator[None]:
        """Samples the broker until the round's window ends."""
        if self._folder is None:
            yield
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        raw = self._folder / f"{self._name}.txt"
        command = ["py-spy", "record", "--pid", str(broker.pid), "--rate", str(RATE_HZ), "--format", "raw"]
        seconds = START_S + conditions.lead_s + conditions.seconds
        tool = str(Path(sys.executable).with_name(command[0]))
        process = subprocess.Popen(
            [tool, *command[1:], "--duration", str(round(seconds)), "--output", str(raw)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            yield
        finally:
            try:
                _, complaints = process.communicate(timeout=seconds + 30)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        if process.returncode:
            raise RuntimeError(f"py-spy failed: {complaints.decode(errors='replace')[-500:]}")
        self._tell(raw)

    def _tell(self, raw: Path) -> None:
        own: Counter[str] = Counter()
        total: Counter[str] = Counter()
        for line in raw.read_text().splitlines():
            stack, _, number = line.rpartition(" ")
            frames = stack.split(";")
            if any(wait in frames[-1] for wait in WAITING):
                continue
            own[frames[-1]] += int(number)
            for function in {frame.rpartition(":")[0] for frame in frames if _is_ours(frame)}:
                total[f"{function})"] += int(number)
        samples = sum(own.values()) or 1
        print(f"--- {self._name}: {samples} samples, {raw}")
        for title, counts in (("own, by line", own), ("with callees, by function", total)):
            print(f"    {title}")
            for frame, times in counts.most_common(TOP):
                print(f"      {times / samples:6.1%}  {frame}")
