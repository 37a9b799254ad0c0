"""The event loop's lateness is measured and, beyond a limit, reported."""

import asyncio
import time

import pytest

from penstock.server.loop.stall import StallMeter


def test_a_punctual_loop_is_told_apart_from_one_that_stood_still(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> StallMeter:
        meter = StallMeter(limit_ms=150)
        task = asyncio.create_task(meter.run())
        await asyncio.sleep(0.05)
        time.sleep(0.35)
        await asyncio.sleep(0.15)
        task.cancel()
        return meter

    meter = asyncio.run(main())
    assert meter.stalls >= 1
    assert meter.max_ms >= 200
    assert "stood still for" in caplog.messages[0]
    assert "give the node more CPU" in caplog.messages[0]


def test_figures_of_many_ticks() -> None:
    meter = StallMeter(limit_ms=1_000)
    assert (meter.max_ms, meter.p99_ms) == (0, 0)
    for n in range(1_000):
        meter.note(n % 100, n)
    assert (meter.max_ms, meter.p99_ms) == (99, 99)
    for n in range(1_000):
        meter.note(500 if n % 200 == 0 else 1, n)
    assert (meter.max_ms, meter.p99_ms) == (500, 1)


def test_it_is_not_told_again_and_again_unless_it_gets_worse(caplog: pytest.LogCaptureFixture) -> None:
    meter = StallMeter(limit_ms=100)
    for now_ms, late_ms in ((0, 99), (1, 110), (2, 120), (3, 219), (4, 221), (5, 222), (10_005, 101)):
        meter.note(late_ms, now_ms)
    assert meter.stalls == 6
    assert [message.split(" (")[0].rpartition("for ")[2] for message in caplog.messages] == [
        "110 ms",
        "221 ms",
        "101 ms",
    ]
