"""A small world of the kind that `./dev simulate big-cluster` runs with a hundred brokers."""

import pytest

from tests.simulation.hundred_brokers.story import Story, found, section
from tests.simulation.hundred_brokers.world import Batch, Broker


def story(seed: int = 0) -> Story:
    return Story(brokers=9, partitions=200, racks=3, restarts=2, seed=seed)


def test_brokers_racks_and_controllers_go_and_come_back_and_every_partition_stays_whole() -> None:
    told = story()
    told.tell()
    run = found(told, 1.0)
    assert [each["what"] for each in run["phases"]].count("it is back, and in sync") == 2
    assert run["killed_led_again_s"] < 1.0, "a broken connection is noticed at once"
    assert 2.5 < run["rack_led_again_s"] < 5.0, "darkness is noticed by silence"
    assert run["rack_brokers"] == 3
    assert run["rack_unled"] > 20
    rest = told.phases[2]
    assert rest.records == 0, "at rest nothing is recorded"
    assert 8 * 2 <= run["heartbeats_s"] <= 10 * 2
    assert "9 brokers, 200 partitions, 3 racks" in section(run)


def test_a_story_is_told_twice_in_the_same_way() -> None:
    one, other = story(7), story(7)
    for each in (one, other):
        each.tell()
    assert one.world.trace_hash == other.world.trace_hash
    assert one.times == other.times
    assert story(8).world.trace_hash != one.world.trace_hash


def test_a_broker_that_stops_before_it_has_handed_over_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop_at_once(self: Story, broker: Broker) -> None:
        self.world.nodes[broker.broker_id].crash()
        self._never_unled(lambda: False, "it stops")

    monkeypatch.setattr(Story, "_restart", stop_at_once)
    with pytest.raises(AssertionError, match="without a leader while waiting that it stops"):
        story().tell()


def test_a_log_that_says_something_else_than_the_controller_has_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    told = story()
    monkeypatch.setattr(told, "restarts", 0)
    told.tell()
    (leader,) = [node for node in told.world.nodes.values() if node.machine is told.world.cluster.active]
    batch = next(each.content for each in leader.disk.log.entries if isinstance(each.content, Batch))
    batch.records = ()
    with pytest.raises(AssertionError, match="does not say what the controller has"):
        told._check_the_log()
