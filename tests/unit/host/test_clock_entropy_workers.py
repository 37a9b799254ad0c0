"""The clocks tick, randomness is random, workers work."""

import asyncio
import threading
import time

import pytest

from penstock.host.clock import HostClock
from penstock.host.entropy import HostEntropy
from penstock.host.workers import ThreadWorkers
from penstock.model.ports import Clock, Entropy, Workers


def test_the_clocks_tick() -> None:
    clock: Clock = HostClock()
    assert abs(clock.wall_ms() - time.time() * 1000) < 1000
    before = clock.monotonic_ms()
    time.sleep(0.01)
    assert 10 <= clock.monotonic_ms() - before < 5000


def test_randomness_is_random() -> None:
    entropy: Entropy = HostEntropy()
    assert len({entropy.token(16) for _ in range(100)}) == 100
    assert len(entropy.token(5)) == 5
    assert {entropy.below(3) for _ in range(200)} == {0, 1, 2}


def test_workers_return_raise_and_are_bounded() -> None:
    async def story() -> None:
        workers = ThreadWorkers(threads_max=2)
        port: Workers = workers
        assert await port.run(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await port.run(lambda: 1 // 0)
        names = set()
        both = threading.Barrier(2, timeout=10)

        def work() -> None:
            names.add(threading.current_thread().name)
            both.wait()

        await asyncio.gather(*(port.run(work) for _ in range(10)))
        assert len(names) == 2
        assert threading.current_thread().name not in names
        workers.close()
        with pytest.raises(RuntimeError):
            await port.run(lambda: 7)

    asyncio.run(story())
