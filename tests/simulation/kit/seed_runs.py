"""Helpers for tests of worlds: run seeds, here or in another process; a failure names the command that replays it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[3]
R = TypeVar("R")


def run_all(run_seed: Callable[[int], R], program: str, seeds: Iterable[int]) -> list[R]:
    runs = []
    for seed in seeds:
        try:
            runs.append(run_seed(seed))
        except Exception as trouble:
            replay = f"python -m tests.simulation.{program} {seed}"
            raise AssertionError(f"seed {seed} failed: {trouble}; replay it: {replay}") from trouble
    return runs


def output_of_process(program: str, *arguments: str, hash_seed: str) -> str:
    """The output of another process, with a different order of sets because of its hash seed."""
    command = [sys.executable, "-m", f"tests.simulation.{program}", *arguments]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
