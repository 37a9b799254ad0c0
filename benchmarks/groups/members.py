"""A hundred members of a group in one process: librdkafka consumers, polled by one thread.

They record the partitions that were assigned and revoked, and the time from append to read of each record.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import confluent_kafka

CALM: Final = {"log_level": 0, "socket.keepalive.enable": True}
CLASSIC: Final = {"group.protocol": "classic", "partition.assignment.strategy": "cooperative-sticky"}
EAGER: Final = {"group.protocol": "classic", "partition.assignment.strategy": "range"}
CONSUMER: Final = {"group.protocol": "consumer"}
PROTOCOLS: Final = {"classic, cooperative": CLASSIC, "consumer (KIP-848)": CONSUMER, "classic, eager": EAGER}
TURN_S: Final = 0.002


class NotStable(Exception):
    """The group did not become stable in time."""


class Heard(NamedTuple):
    """A record that was read."""

    appended_s: float
    waited_s: float


def waits(heard: Mapping[int, Sequence[Heard]], since_s: float) -> dict[int, float]:
    """The longest time from append to read by partition, of records appended since `since_s`.

    Records after the last one that was read count as waiting until now, because the writer never pauses.
    """
    now_s, found = time.time(), {}
    for partition, records in heard.items():
        since = [each for each in records if each.appended_s >= since_s]
        last_s = since[-1].appended_s if since else since_s
        found[partition] = max(now_s - last_s, *(each.waited_s for each in since), 0.0)
    return found


class Member:
    """One consumer."""

    def __init__(self, bootstrap: str, group: str, topic: str, settings: dict[str, str]) -> None:
        self.owned: set[int] = set()
        self.lost: set[int] = set()
        """All partitions that were ever revoked or lost."""
        self._consumer: Any = confluent_kafka.Consumer(
            {
                **CALM,
                **settings,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _assigned(self, _consumer: Any, partitions: list[Any]) -> None:
        self.owned |= {each.partition for each in partitions}

    def _revoked(self, _consumer: Any, partitions: list[Any]) -> None:
        taken = {each.partition for each in partitions}
        self.owned -= taken
        self.lost |= taken

    def turn(self, heard: Callable[[int, float], None] | None) -> None:
        """Polls, and passes each record's partition and append time to `heard`."""
        for message in self._consumer.consume(100, 0):
            if message.error() is None and heard is not None:
                heard(message.partition(), message.timestamp()[1] / 1000)

    def close(self) -> None:
        self._consumer.close()


class Members:
    """All members of the group."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int, settings: dict[str, str]) -> None:
        self._arguments = bootstrap, group, topic, settings
        self._partitions = partitions
        self.all: list[Member] = []
        self.heard: dict[int, list[Heard]] = {each: [] for each in range(partitions)}

    def join(self, count: int) -> None:
        for _ in range(count):
            self.all.append(Member(*self._arguments))

    def until_stable(self, deadline_s: float) -> float:
        """Polls until each partition has one owner and partition counts differ by at most 1; returns the seconds."""
        began_s = time.monotonic()
        while not self.is_stable:
            if time.monotonic() - began_s > deadline_s:
                raise NotStable(f"{self.summary} after {deadline_s:.0f} s")
            self.turn_all()
        return time.monotonic() - began_s

    def turn_for(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.turn_all()

    def turn_all(self) -> None:
        for member in self.all:
            member.turn(self._heard)
        time.sleep(TURN_S)

    def _heard(self, partition: int, appended_s: float) -> None:
        self.heard[partition].append(Heard(appended_s, time.time() - appended_s))

    @property
    def is_stable(self) -> bool:
        counts = [len(member.owned) for member in self.all]
        everything = set().union(*(member.owned for member in self.all))
        is_whole = sum(counts) == len(everything) == self._partitions
        return is_whole and max(counts) - min(counts) <= 1

    @property
    def summary(self) -> str:
        counts = sorted(len(member.owned) for member in self.all)
        return f"{len(self.all)} members have {counts[0]} to {counts[-1]} of {self._partitions} partitions"

    def close(self) -> None:
        for member in self.all:
            member.close()
