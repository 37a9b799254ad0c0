"""Chooses the corpus that is committed: `python tests/fuzz/minimise.py [TARGET …]`.

Candidates are the committed files, the inputs that the fuzzer kept in `.cache/fuzz`, and fresh seeds. Inputs are chosen
by how many lines they reach that no chosen one has reached, small ones before large ones, until nothing is new or the
budget is spent. Regressions stay whatever they reach.
"""

import hashlib
import random
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fuzz.run import CORPUS, WORK
from tests.fuzz.seeds import seeds_for
from tests.fuzz.targets import TARGETS

FILES_MAX = 200
BYTES_MAX = 300_000

Step = tuple[str, int, int]


def steps_of(name: str, data: bytes) -> frozenset[Step]:
    """Pairs of consecutive lines in the code under test, compiled readers included."""
    found: set[Step] = set()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if not (file.startswith("<read ") or "/penstock/" in file):
            return None
        before = 0

        def step(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal before
            if event == "line":
                found.add((file, before, frame.f_lineno))
                before = frame.f_lineno
            return step

        return step

    sys.settrace(trace)
    try:
        TARGETS[name](data)
    finally:
        sys.settrace(None)
    return frozenset(found)


def choose(name: str, candidates: Iterable[bytes]) -> list[bytes]:
    """Greedy: takes the input that adds most steps, until none adds any or the budget is spent."""
    # Run once untraced: code that is compiled on first use must not count for the input.
    inputs = sorted(set(candidates), key=lambda data: (len(data), data))
    for data in inputs:
        TARGETS[name](data)
    reach = {data: steps_of(name, data) for data in inputs}
    chosen: list[bytes] = []
    covered: set[Step] = set()
    size_bytes = 0
    while len(chosen) < FILES_MAX:
        reach = {data: new for data, steps in reach.items() if (new := steps - covered)}
        fitting = [data for data in reach if size_bytes + len(data) <= BYTES_MAX]
        if not fitting:
            break
        best = max(fitting, key=lambda data: (len(reach[data]), -len(data)))
        covered |= reach.pop(best)
        chosen.append(best)
        size_bytes += len(best)
    return chosen


def minimise(name: str) -> None:
    """Replaces the committed corpus of one target, regressions excepted."""
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    old = [file for file in folder.iterdir() if not file.name.startswith(("regression-", "found-"))]
    kept = list((WORK / name).iterdir()) if (WORK / name).exists() else []
    candidates = [file.read_bytes() for file in [*old, *kept]] + seeds_for(name, random.Random(0))
    chosen = choose(name, candidates)
    for file in old:
        file.unlink()
    for data in chosen:
        (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    print(f"{name}: {len(chosen)} of {len(candidates)} inputs, {sum(map(len, chosen)):,} bytes")


if __name__ == "__main__":
    for chosen_name in sys.argv[1:] or TARGETS:
        minimise(chosen_name)
