"""The leader epoch history of one log: which epoch began at which offset.

Two logs that agree on an epoch agree on everything before its end; a follower uses this to find where its log has
diverged (KIP-101, KIP-279). Epochs rise strictly, start offsets never fall.
"""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple


class EpochStart(NamedTuple):
    """An epoch and the first offset written in it."""

    epoch: int
    start_offset: int


class EpochHistory:
    """Epochs in rising order."""

    __slots__ = ("_entries",)

    def __init__(self, entries: list[EpochStart] | None = None) -> None:
        self._entries: list[EpochStart] = entries or []
        self._check_order()

    def __iter__(self) -> Iterator[EpochStart]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpochHistory) and other._entries == self._entries

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"EpochHistory({[tuple(e) for e in self._entries]})"

    @property
    def latest(self) -> int:
        """The newest epoch, -1 if there is none."""
        return self._entries[-1].epoch if self._entries else -1

    def begin(self, epoch: int, start_offset: int) -> bool:
        """Records that `epoch` begins at `start_offset`; True if it is new. It replaces epochs without records."""
        if epoch <= self.latest:
            return False
        while self._entries and self._entries[-1].start_offset >= start_offset:
            self._entries.pop()
        self._entries.append(EpochStart(epoch, start_offset))
        return True

    def take_back(self, before: list[EpochStart], given_up: int = -1) -> None:
        """Restores earlier entries; keeps epochs that began since, except `given_up`."""
        known = {given_up, *(entry.epoch for entry in before)}
        self._entries = before + [entry for entry in self._entries if entry.epoch not in known]
        self._check_order()

    def _check_order(self) -> None:
        """Checks the order on which every search here relies."""
        for one, next_one in pairwise(self._entries):
            assert one.epoch < next_one.epoch, f"{self!r} goes back to an epoch"
            assert one.start_offset <= next_one.start_offset, f"{self!r} goes back to an offset"

    def epoch_at(self, offset: int) -> int:
        """The epoch in which this offset was (or would be) written, -1 before the first."""
        at = bisect_right(self._entries, offset, key=lambda e: e.start_offset) - 1
        return self._entries[at].epoch if at >= 0 else -1

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(largest epoch ≤ `epoch`, its end offset); (-1, -1) if this history does not determine it (KIP-279)."""
        if not self._entries or epoch < 0:
            return -1, -1
        if epoch >= self.latest:
            return (self.latest, log_end) if epoch == self.latest else (-1, -1)
        at = bisect_right(self._entries, epoch, key=lambda e: e.epoch) - 1
        if at < 0:
            # Older than every entry: the records that follow begin with the first entry.
            return epoch, self._entries[0].start_offset
        return self._entries[at].epoch, self._entries[at + 1].start_offset

    def cut_end(self, end_offset: int) -> None:
        """Removes epochs that began at or after a new end."""
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()

    def cut_start(self, start_offset: int) -> None:
        """Removes epochs that ended before a new start; the epoch that covers it now begins there."""
        keep = bisect_right(self._entries, start_offset, key=lambda e: e.start_offset) - 1
        if keep >= 0:
            first = self._entries[keep]
            self._entries[: keep + 1] = [EpochStart(first.epoch, max(first.start_offset, start_offset))]

    def to_list(self) -> list[list[int]]:
        """Encodes the history for the manifest."""
        return [list(entry) for entry in self._entries]
