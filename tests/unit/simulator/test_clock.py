"""Simulated clocks jump and drift as set, and the monotonic clock never goes back."""

from penstock.simulator.clock import BOOT_MONOTONIC_MS, WALL_START_MS, SimulatedClock


class Time:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_clock_is_right_until_told_otherwise() -> None:
    time = Time()
    clock = SimulatedClock(time)
    time.now_s += 12.5
    assert clock.wall_ms() == WALL_START_MS + 12_500
    assert clock.monotonic_ms() == BOOT_MONOTONIC_MS + 12_500


def test_a_step_moves_the_wall_clock_only() -> None:
    time = Time()
    clock = SimulatedClock(time)
    before = clock.monotonic_ms()
    clock.step(-600_000)
    assert clock.wall_ms() == WALL_START_MS - 600_000
    assert clock.monotonic_ms() == before
    clock.step(700_000)
    assert clock.wall_ms() == WALL_START_MS + 100_000


def test_drift_is_linear_and_changes_without_a_jump() -> None:
    time = Time()
    clock = SimulatedClock(time)
    clock.drift(10_000)  # 1 % too fast
    time.now_s += 100
    assert clock.wall_ms() == WALL_START_MS + 101_000
    clock.drift(-10_000)
    assert clock.wall_ms() == WALL_START_MS + 101_000
    time.now_s += 100
    assert clock.wall_ms() == WALL_START_MS + 200_000
    assert clock.monotonic_ms() == BOOT_MONOTONIC_MS + 200_000


def test_a_strobe_is_off_in_every_second_period() -> None:
    time = Time()
    clock = SimulatedClock(time)
    clock.strobe(5_000, 1.0)
    seen = []
    for _ in range(4):
        seen.append(clock.wall_ms() - WALL_START_MS - round((time.now_s - 1_000) * 1_000))
        time.now_s += 1
    assert seen == [0, 5_000, 0, 5_000]
    clock.strobe(0, 1.0)
    assert clock.wall_ms() == WALL_START_MS + 4_000


def test_the_monotonic_clock_never_goes_back_in_one_boot() -> None:
    time = Time()
    clock = SimulatedClock(time)
    last = clock.monotonic_ms()
    for ppm in (500_000, -900_000, 0, -999_999, 10):
        clock.drift(ppm)
        clock.step(-10_000)
        time.now_s += 0.7
        assert clock.monotonic_ms() >= last
        last = clock.monotonic_ms()
    clock.reboot()
    assert clock.monotonic_ms() == BOOT_MONOTONIC_MS < last


def test_set_right_takes_all_errors_away() -> None:
    time = Time()
    clock = SimulatedClock(time)
    clock.drift(50_000)
    clock.step(1e6)
    clock.strobe(1e5, 0.1)
    time.now_s += 10
    clock.set_right()
    time.now_s += 10
    assert abs(clock.wall_ms() - (WALL_START_MS + 20_000)) <= 1
