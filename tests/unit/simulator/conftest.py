from collections.abc import Iterator

import pytest

from penstock.simulator.loop import VirtualLoop, new_loop
from penstock.simulator.world import World


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = new_loop(events_max=200_000, events_per_instant_max=10_000)
    yield loop
    if not loop.is_closed():
        loop.close()


@pytest.fixture
def world() -> Iterator[World]:
    with World(7) as world:
        yield world
