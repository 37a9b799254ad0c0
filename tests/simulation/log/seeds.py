"""Seeds for histories of logs: fixed ones in chunks, and fresh ones in every run."""

from collections.abc import Callable
from random import SystemRandom

FRESH = SystemRandom().randrange(10**9, 10**12)


def seeds(chunk: int, fixed: int, fresh: int) -> list[int]:
    own = range(chunk * fixed, (chunk + 1) * fixed)
    return [*own, *range(FRESH + chunk * fresh, FRESH + (chunk + 1) * fresh)]


def run_all(chunk: int, run: Callable[[int], object], fixed: int, fresh: int) -> None:
    for seed in seeds(chunk, fixed, fresh):
        try:
            run(seed)
        except BaseException as trouble:
            raise AssertionError(f"seed {seed}: {trouble!r}") from trouble
