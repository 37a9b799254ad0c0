"""Loads on clusters of three brokers: each leads a third of the partitions, and producers use acks=all."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.side_by_side.brokers import Broker
from benchmarks.side_by_side.jobs import Job, Load
from benchmarks.side_by_side.loads import Conditions, Figures, Produce, check_count, figures, new_name, watched
from benchmarks.side_by_side.trios import BROKERS, Trio
from harness.raw_client import Topic


@dataclass
class Replicated(Produce):
    """Pre-encoded batches, as many as three brokers accept; connections and partitions are counted per broker."""

    def measure(self, broker: Broker, settings: Mapping[str, str], conditions: Conditions) -> Figures:
        return self._run(broker, settings, conditions, "generator", {})

    def _run(
        self, broker: Broker, settings: Mapping[str, str], conditions: Conditions, kind: str, more: Mapping[str, Any]
    ) -> Figures:
        assert isinstance(broker, Trio)
        with three_topics(broker, self.partitions, settings) as topics:
            load = Load([(kind, self._job_for(broker, topics, more))], conditions.cores.load)
            begin, end = watched(load, broker, conditions)
            (result,) = load.results()
            check_counts(broker, topics, self.partitions, result["acknowledged"])
            return figures(broker, conditions.seconds, begin, end, [result])

    def _job_for(self, broker: Trio, topics: Mapping[int, Topic], more: Mapping[str, Any]) -> Job:
        places = [(broker.addresses[leader], topic.topic_id.hex()) for leader, topic in topics.items()]
        first = topics[BROKERS[0]]
        return self.job(
            broker, first, **{"connections": self.connections * len(places), "settings": {"places": places}, **more}
        )


@dataclass
class ReplicatedPaced(Replicated):
    """Requests at half of the slowest contender's maximum rate; measures ack latency."""

    rate: float = 0.0

    @property
    def unit(self) -> str:
        return "ack_p99"

    def warm(self, broker: Broker, settings: Mapping[str, str], conditions: Conditions) -> Figures:
        return super().measure(broker, settings, conditions)

    def prepare(self, contenders: Sequence[tuple[Broker, Mapping[str, str]]], conditions: Conditions) -> None:
        if not self.rate:
            most = [self.warm(broker, settings, conditions)["requests_s"] for broker, settings in contenders]
            self.rate = min(most) / 2

    def measure(self, broker: Broker, settings: Mapping[str, str], conditions: Conditions) -> Figures:
        found = self._run(broker, settings, conditions, "pacer", {"rate": self.rate})
        return {**found, "rate": self.rate, "load_is_limit": False}


@contextmanager
def three_topics(broker: Trio, partitions: int, settings: Mapping[str, str]) -> Iterator[Mapping[int, Topic]]:
    """One topic led by each broker, for one round."""
    before_bytes = broker.used_bytes()
    topics = {leader: broker.create_led_by(leader, new_name(), partitions, settings) for leader in BROKERS}
    os.sync()
    yield topics
    for topic in topics.values():
        broker.delete(topic)
    broker.wait_until_removed(before_bytes)


def check_counts(broker: Trio, topics: Mapping[int, Topic], partitions: int, acknowledged: int) -> None:
    """Compares the acknowledged records with those in the logs."""
    others = [broker.end(topic, partitions) for topic in list(topics.values())[1:]]
    check_count(broker, topics[BROKERS[0]], partitions, acknowledged - sum(others))
