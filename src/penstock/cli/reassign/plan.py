"""Plans of replica placement: computed from the current placement, and stored in the file format of Kafka's tools.

Invariants: a partition keeps its number of replicas, each on another broker; replicas on allowed brokers stay where
they are, unless even load is requested; a partition is never spread over fewer racks than necessary. The same cluster
gives the same plan.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.cli.errors import Failed, Misused
from penstock.client.metadata import TopicPartition

Placement = dict[TopicPartition, tuple[int, ...]]
"""Replicas of partitions, the preferred leader first."""
Racks = Mapping[int, str | None]
"""Brokers that may have replicas, and their racks."""


@dataclass(frozen=True, slots=True)
class Move:
    """A partition whose replicas change."""

    partition: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]
    size_bytes: int = 0
    """The size of one replica."""

    @property
    def adding(self) -> tuple[int, ...]:
        """Brokers that get a replica."""
        return tuple(each for each in self.after if each not in self.before)

    @property
    def copied_bytes(self) -> int:
        """The bytes that are copied over the network."""
        return self.size_bytes * len(self.adding)


def plan_moves(placed: Placement, allowed: Racks, *, evens: bool) -> Placement:
    """New replicas of partitions on brokers that are not allowed; with `evens`, also moves that make loads equal."""
    planner = _Planner(placed, allowed)
    planner.leave_others()
    if evens:
        planner.even_out()
        planner.even_leaders()
    return {each: after for each, after in planner.placed.items() if after != placed[each]}


class _Planner:
    def __init__(self, placed: Placement, allowed: Racks) -> None:
        self.placed = dict(sorted(placed.items()))
        self._racks = allowed
        self._load = dict.fromkeys(sorted(allowed), 0)
        self._leads = dict.fromkeys(self._load, 0)
        for partition, replicas in self.placed.items():
            if len(replicas) > len(allowed):
                raise Failed(
                    f"{partition} has {len(replicas)} replicas, and {len(allowed)} brokers cannot have them all: "
                    "name more brokers"
                )
            self._count(replicas, 1)

    def _count(self, replicas: Sequence[int], sign: int) -> None:
        for each in replicas:
            if each in self._load:
                self._load[each] += sign
        if replicas and replicas[0] in self._leads:
            self._leads[replicas[0]] += sign

    def _put(self, partition: TopicPartition, replicas: tuple[int, ...]) -> None:
        self._count(self.placed[partition], -1)
        self._count(replicas, 1)
        self.placed[partition] = replicas

    def _spread(self, replicas: Sequence[int]) -> int:
        """The number of racks; a broker without a rack counts as a rack of its own."""
        return len({self._racks.get(each) or each for each in replicas})

    def leave_others(self) -> None:
        """Replaces brokers that are not allowed, in place: by rack spread first, then by least load."""
        for partition, replicas in self.placed.items():
            for slot, leaving in enumerate(replicas):
                if leaving not in self._racks:
                    self._put(partition, self._with(self.placed[partition], slot))

    def _with(self, replicas: tuple[int, ...], slot: int) -> tuple[int, ...]:
        choices = (_replaced(replicas, slot, each) for each in self._load if each not in replicas)
        return min(
            choices,
            key=lambda those: (
                -self._spread([each for each in those if each in self._racks]),
                self._load[those[slot]],
                self._leads[those[slot]] if slot == 0 else 0,
            ),
        )

    def even_out(self) -> None:
        """Moves replicas from the most to the least loaded brokers, as long as that makes loads more equal."""
        while (step := self._next_step()) is not None:
            self._put(*step)

    def _next_step(self) -> tuple[TopicPartition, tuple[int, ...]] | None:
        by_load = sorted(self._load, key=lambda each: self._load[each])
        for full in reversed(by_load):
            for empty in by_load:
                if self._load[full] - self._load[empty] < 2:
                    break
                for partition, replicas in self.placed.items():
                    if full in replicas and empty not in replicas:
                        moved = _replaced(replicas, replicas.index(full), empty)
                        if self._spread(moved) >= self._spread(replicas):
                            return partition, moved
        return None

    def even_leaders(self) -> None:
        """Evens out preferred leaders by reordering replicas, which copies nothing."""
        for partition, replicas in self.placed.items():
            least = min(replicas, key=lambda each: self._leads[each])
            if self._leads[replicas[0]] - self._leads[least] >= 2:
                self._put(partition, (least, *(each for each in replicas if each != least)))


def _replaced(replicas: tuple[int, ...], slot: int, broker: int) -> tuple[int, ...]:
    return (*replicas[:slot], broker, *replicas[slot + 1 :])


# --- files ------------------------------------------------------------------------------------------------------------


def write_plan(path: Path, placed: Placement) -> None:
    """Writes a plan as `kafka-reassign-partitions` reads it."""
    partitions = [
        {"topic": each.topic, "partition": each.partition, "replicas": list(replicas)}
        for each, replicas in sorted(placed.items())
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}, indent=2) + "\n", encoding="utf-8")


def read_plan(path: Path) -> Placement:
    """Reads a plan of ours, or one that was made for Kafka's tool."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        placed: Placement = {}
        for each in said["partitions"]:
            replicas = tuple(int(broker) for broker in each["replicas"])
            placed[TopicPartition(str(each["topic"]), int(each["partition"]))] = replicas
            if any(place != "any" for place in each.get("log_dirs", ())):
                raise Misused(f"{path} names log_dirs, and replicas are not moved between directories: leave them out")
    except (ValueError, KeyError, TypeError) as error:
        raise Misused(
            f"{path} is not a plan ({error}): `penstock reassign plan` or `kafka-reassign-partitions` makes one"
        ) from None
    if not placed:
        raise Misused(f"{path} moves nothing: it has no partitions")
    return placed
