"""Streams are independent of each other and depend only on seed and label."""

from penstock.simulator.entropy import SimulatedEntropy
from penstock.simulator.options import FaultOptions, draw_options
from penstock.simulator.randomness import Streams


def test_a_draw_in_one_stream_does_not_shift_another() -> None:
    one, other = Streams(1), Streams(1)
    one.stream("disk", "node-1").random()
    assert one.stream("link", "a", "b").random() == other.stream("link", "a", "b").random()


def test_a_stream_goes_on_where_it_was() -> None:
    streams = Streams(1)
    assert streams.stream("disk", "a") is streams.stream("disk", "a")


def test_seed_and_label_make_the_stream() -> None:
    draws = [Streams(1).stream("a", "b"), Streams(2).stream("a", "b"), Streams(1).stream("ab"), Streams(1).stream("a")]
    assert len({stream.random() for stream in draws}) == 4
    assert Streams(7).stream("disk", "node-1").random() == 0.3405277917330469, "seeds of last year mean the same"


def test_entropy_comes_from_its_stream() -> None:
    one, same = (SimulatedEntropy(Streams(1).stream("entropy")) for _ in range(2))
    assert one.token(16) == same.token(16)
    assert len(one.token(5)) == 5
    assert {one.below(3) for _ in range(100)} == {0, 1, 2}


def test_a_swarm_has_worlds_with_and_without_each_fault() -> None:
    worlds = [draw_options(Streams(seed).stream("options")) for seed in range(200)]
    calm = FaultOptions()
    for name in FaultOptions.__slots__:
        values = [getattr(world, name) for world in worlds]
        if name.endswith("_every_s"):
            assert 50 < sum(value == 0.0 for value in values) < 150, name
        elif name not in {"down_nodes_max", "clock_step_ms_max", "slow_sync_s_max"}:
            assert any(value != getattr(calm, name) for value in values), name
