"""Brokers that hold partitions of a simulated cluster: enough of replication to see the effects of the controller.

A leader commits records that all of the ISR hold, as long as the ISR has the topic's minimum size. A change of the ISR
takes effect when the metadata log contains it; until then the leader waits for the members of both the old and the new
set. Followers fetch, and truncate records that the leader of their epoch does not have.
"""

from typing import NamedTuple

from penstock.metadata.image import TOPIC, Image, Partition

Where = tuple[bytes, int]
"""A partition: id of its topic, number."""


class Entry(NamedTuple):
    epoch: int
    value: int


class Fetch(NamedTuple):
    where: Where
    follower: int
    broker_epoch: int
    epoch: int
    end: int
    last_epoch: int
    number: int


class Fetched(NamedTuple):
    where: Where
    epoch: int
    number: int
    """The number of the request: a response to an earlier one would come on a closed connection."""
    cut_to: int | None
    entries: tuple[Entry, ...]
    high_watermark: int


class Replica:
    """One replica of one partition on one broker."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.high_watermark = 0
        self.epoch = -1
        self.partition_epoch = -1
        self.leader = -1
        self.isr: tuple[int, ...] = ()
        self.pending: tuple[int, ...] | None = None
        self.pending_named: tuple[tuple[int, int], ...] = ()
        """The pending ISR with broker epochs: a broker that comes back with another epoch may have lost everything."""
        self.pending_since = 0.0
        self.asked = 0
        """The number of the last request to the controller: a response to an earlier one may be outdated."""
        self.epoch_start = 0
        self.in_sync_min = 1
        self.ends: dict[int, tuple[int, int]] = {}
        """For each follower its fetch offset and broker epoch."""
        self.caught_up_at: dict[int, float] = {}
        self.fetches = 0

    # --- metadata -------------------------------------------------------------------------------------------------

    def follow_metadata(self, me: int, partition: Partition, in_sync_min: int, now: float) -> None:
        self.in_sync_min = min(in_sync_min, len(partition.replicas))
        if partition.leader_epoch > self.epoch:
            self.ends.clear()
            self.pending = None
            self.epoch_start = len(self.log)
            self.caught_up_at = dict.fromkeys(partition.replicas, now)
        elif partition.partition_epoch > self.partition_epoch:
            self.pending = None
        self.epoch = partition.leader_epoch
        self.partition_epoch = partition.partition_epoch
        self.leader = partition.leader
        self.isr = partition.isr if partition.leader == me else ()

    # --- leader ---------------------------------------------------------------------------------------------------

    def serve(self, fetch: Fetch, now: float) -> Fetched | None:
        if fetch.epoch != self.epoch:
            return None
        cut_to = self._parted(fetch)
        if cut_to is None:
            self.ends[fetch.follower] = (fetch.end, fetch.broker_epoch)
            if fetch.end == len(self.log):
                self.caught_up_at[fetch.follower] = now
        entries = () if cut_to is not None else tuple(self.log[fetch.end :])
        return Fetched(fetch.where, self.epoch, fetch.number, cut_to, entries, self.high_watermark)

    def _parted(self, fetch: Fetch) -> int | None:
        end = end_of_epoch(self.log, fetch.last_epoch)
        fits = fetch.end <= end and (fetch.end == 0 or self.log[fetch.end - 1].epoch == fetch.last_epoch)
        return None if fits else min(end, fetch.end - 1)

    def advance(self, me: int) -> range:
        """The offsets that become committed now."""
        old = self.high_watermark
        counting = {*self.isr, *(self.pending or ())} - {me}
        if me not in self.isr or len(self.isr) < self.in_sync_min:
            return range(0)
        new = min([len(self.log), *(self.ends.get(each, (0, 0))[0] for each in counting)])
        self.high_watermark = max(old, new)
        return range(old, self.high_watermark)

    def wanted_isr(self, me: int, replicas: tuple[int, ...], now: float, patience_ms: float) -> tuple[int, ...] | None:
        """A new ISR, if one is due."""
        if self.pending is not None:
            return None
        wanted = [me]
        for each in replicas:
            end, _ = self.ends.get(each, (-1, -1))
            has_all = end >= max(self.high_watermark, self.epoch_start)
            is_late = now - self.caught_up_at.get(each, 0.0) > patience_ms
            if each != me and (
                (each in self.isr and not is_late) or (each not in self.isr and has_all and not is_late)
            ):
                wanted.append(each)
        return tuple(wanted) if sorted(wanted) != sorted(self.isr) else None

    # --- follower -------------------------------------------------------------------------------------------------

    def fetch(self, where: Where, me: int, broker_epoch: int) -> Fetch:
        last_epoch = self.log[-1].epoch if self.log else -1
        self.fetches += 1
        return Fetch(where, me, broker_epoch, self.epoch, len(self.log), last_epoch, self.fetches)

    def take(self, fetched: Fetched) -> None:
        if fetched.epoch != self.epoch or fetched.number != self.fetches:
            return
        self.fetches += 1
        if fetched.cut_to is not None:
            del self.log[max(0, fetched.cut_to) :]
        self.log += fetched.entries
        self.high_watermark = min(max(self.high_watermark, fetched.high_watermark), len(self.log))


def end_of_epoch(log: list[Entry], epoch: int) -> int:
    """The offset after the last entry of this epoch or an earlier one."""
    end = len(log)
    while end and log[end - 1].epoch > epoch:
        end -= 1
    return end


def in_sync_min_of(image: Image, topic: str) -> int:
    return int(image.config(TOPIC, topic).get("min.insync.replicas", "1"))
