"""The guard detects a case that costs too much, and accepts all others."""

import time

import pytest

from tests.fuzz import guard
from tests.fuzz.guard import MIB, Target, TooLarge, TooSlow, proportional


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_PAUSES_S", (0.0, 0.01))


def burn(processor_ms: float) -> None:
    end = time.process_time() + processor_ms / 1000
    while time.process_time() < end:
        pass


def test_a_case_that_burns_60_ms_is_found() -> None:
    with pytest.raises(TooSlow, match=r"where 50 are allowed"):
        Target("slow", lambda _data: burn(60.0))(b"x")


def test_a_case_that_waits_for_a_busy_machine_is_not() -> None:
    target = Target("waiting", lambda _data: time.sleep(0.08))
    target(b"x")
    assert target.slowest_ms < 50.0


def test_a_case_that_was_slow_once_is_not() -> None:
    costs_ms = iter([60.0])
    Target("once", lambda _data: burn(next(costs_ms, 0.0)))(b"x")


def test_a_case_that_takes_64_mib_is_found_each_time_by_the_resident_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "CASE_MS_MAX", 1_000.0)  # the memory alone costs a busy machine 50 ms
    target = Target("large", lambda _data: bytearray(64 * MIB).clear(), sampled_every=1_000_000)
    with pytest.raises(TooLarge, match="memory grew by"):
        target(b"x")


def test_a_case_that_takes_200_times_its_input_is_found_when_it_is_measured() -> None:
    target = Target("amplifying", lambda data: [*range(25 * len(data))].clear(), proportional(64, 1024))
    target.measure(b"")
    with pytest.raises(TooLarge, match="for an input of 4,096"):
        target.measure(b"x" * 4096)


def test_one_input_in_so_many_is_measured() -> None:
    target = Target("sampled", lambda data: [*range(25 * len(data))].clear(), proportional(64, 1024), 8)
    for _ in range(7):
        target(b"x" * 64)
    with pytest.raises(TooLarge):
        target(b"x" * 64)
    assert (target.executions, target.measured) == (8, 1)


def test_what_the_first_run_leaves_in_caches_does_not_count() -> None:
    kept: list[bytearray] = []
    target = Target("caching", lambda _data: kept.append(bytearray(MIB)) if not kept else None, proportional(0, 1024))
    target.measure(b"x")
    assert target.peak_max_bytes < 1024
