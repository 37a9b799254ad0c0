"""Long-lived objects are not scanned in every garbage collection, and garbage is still freed."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from penstock.host import garbage
from penstock.host.garbage import PatientCollector


class Thing:
    """An object that can be part of a reference cycle."""

    def __init__(self) -> None:
        self.other: Thing | None = None


def circle() -> Thing:
    one, other = Thing(), Thing()
    one.other, other.other = other, one
    return one


class World:
    """A collector with a manual clock and memory size."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.blocks = garbage.FEW_BLOCKS
        self.collector = PatientCollector(lambda: self.now_s, lambda: self.blocks)


@pytest.fixture
def world() -> Iterator[World]:
    found = World()
    found.collector.start()
    yield found
    found.collector.stop()


def test_a_collection_looks_only_at_what_is_new(world: World) -> None:
    kept = [Thing() for _ in range(1_000)]
    gc.collect()
    assert not any(isinstance(each, Thing) for each in gc.get_objects()), "they are set aside"
    assert len(kept) == 1_000


def test_garbage_is_found_while_it_is_new(world: World) -> None:
    gone = weakref.ref(circle())
    gc.collect()
    assert gone() is None


def test_garbage_among_what_was_set_aside_is_found_when_there_is_much_more(world: World) -> None:
    thing: Thing | None = circle()
    gone = weakref.ref(thing)
    gc.collect()
    thing = None
    gc.collect()
    assert gone() is not None, "it was set aside"
    world.blocks *= 2
    world.now_s += garbage.LOOK_S
    gc.collect()  # notices the growth
    gc.collect()  # scans all objects
    assert gone() is None
    looked = world.collector.whole
    for grown, expected in ((1.4, looked), (2.0, looked + 1)):
        world.blocks = int(2 * garbage.FEW_BLOCKS * grown)
        world.now_s += garbage.LOOK_S
        gc.collect()
        gc.collect()
        assert world.collector.whole == expected


def test_it_looks_how_much_there_is_once_a_minute(world: World) -> None:
    gc.collect()
    world.blocks *= 10
    world.now_s += garbage.LOOK_S - 1
    gc.collect()
    gc.collect()
    assert world.collector.whole == 1


def test_after_the_end_everything_is_as_it_was() -> None:
    collector = PatientCollector()
    collector.start()
    kept = [Thing() for _ in range(10)]
    gc.collect()
    collector.stop()
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert gc.get_freeze_count() == 0
    assert len(kept) == 10
