"""Progress of reassignments: the bytes copied, the rate, and the remaining time.

Sizes are the log sizes that brokers report: the progress of a replica that is being added is the size of its log
relative to its leader's.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.cli.errors import Failed
from penstock.client.admin.reassignments import Moving
from penstock.client.client import Client
from penstock.client.errors import ClientError
from penstock.client.metadata import TopicPartition

POLL_S = 0.5
WINDOW_S = 10.0
"""The period over which the rate is measured."""
ABSENT_S_MAX = 15.0
SIZES_MS = 3_000
"""How long a broker has to report sizes; one that was just killed is listed for a while."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The progress of one partition."""

    moving: Moving
    size_bytes: int
    """The size of its leader's log."""
    copied_bytes: int
    """The bytes of all replicas that are being added, together."""

    @property
    def total_bytes(self) -> int:
        """The bytes that all replicas being added need, together."""
        return self.size_bytes * len(self.moving.adding)

    @property
    def left_bytes(self) -> int:
        """The bytes that are still to be copied."""
        return max(0, self.total_bytes - self.copied_bytes)


@dataclass
class Pace:
    """The rate at which the remaining bytes decrease."""

    samples: list[tuple[float, int]] = field(default_factory=list)

    def note(self, left_bytes: int, now_s: float) -> None:
        """Adds a sample of the remaining bytes."""
        self.samples.append((now_s, left_bytes))
        while len(self.samples) > 2 and now_s - self.samples[0][0] > WINDOW_S:
            del self.samples[0]

    @property
    def bytes_per_second(self) -> float:
        """The rate; 0 as long as it is unknown."""
        if len(self.samples) < 2:
            return 0.0
        (began_s, before), (now_s, after) = self.samples[0], self.samples[-1]
        return max(0.0, (before - after) / max(now_s - began_s, 1e-9))

    @property
    def eta_s(self) -> float | None:
        """The remaining time; None if it is unknown."""
        left_bytes, rate = self.samples[-1][1], self.bytes_per_second
        if not left_bytes:
            return 0.0
        return left_bytes / rate if rate else None


async def partition_bytes(client: Client, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, dict[int, int]]:
    """The sizes of the replicas of these partitions, by broker; brokers that do not answer are left out."""

    async def ask(node_id: int) -> dict[TopicPartition, int]:
        try:
            found = (await client.admin.log_dirs([node_id], partitions=partitions, timeout_ms=SIZES_MS))[node_id]
        except ClientError:
            return {}
        return {each: size for place in found for each, size in place.replicas.items()}

    node_ids = sorted(client.cluster.view.brokers)
    sizes: dict[TopicPartition, dict[int, int]] = {}
    for node_id, found in zip(node_ids, await asyncio.gather(*map(ask, node_ids)), strict=True):
        for each, size in found.items():
            sizes.setdefault(each, {})[node_id] = size
    return sizes


async def standings(client: Client) -> list[Standing]:
    """The progress of all partitions that are being reassigned."""
    moving = await client.admin.list_reassignments()
    if not moving:
        return []
    await client.cluster.refresh(sorted({each.partition.topic for each in moving}))
    sizes = await partition_bytes(client, [each.partition for each in moving])
    found = []
    for each in moving:
        known = sizes.get(each.partition, {})
        leader = client.cluster.view.leader(*each.partition)
        size_bytes = known.get(-1 if leader is None else leader) or max(known.values(), default=0)
        copied = sum(min(size_bytes, known.get(broker, 0)) for broker in each.adding)
        found.append(Standing(each, size_bytes, copied))
    return found


async def watch(client: Client, show: Callable[[Sequence[Standing], Pace], None]) -> None:
    """Returns when no partition moves any more; fails if a target broker is absent for more than ABSENT_S_MAX."""
    pace, absent_since_s = Pace(), None
    while True:
        found = await standings(client)
        now_s = time.monotonic()
        pace.note(sum(each.left_bytes for each in found), now_s)
        show(found, pace)
        if not found:
            return
        absent = {broker for each in found for broker in each.moving.adding} - client.cluster.view.brokers.keys()
        absent_since_s = None if not absent else now_s if absent_since_s is None else absent_since_s
        if absent_since_s is not None and now_s - absent_since_s > ABSENT_S_MAX:
            raise Failed(
                f"partitions move to broker {min(absent)}, which is not there: start it, and the moves go on by "
                "themselves; `penstock reassign status --wait` watches them"
            )
        await asyncio.sleep(POLL_S)
