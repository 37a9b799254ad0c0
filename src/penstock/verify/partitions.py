"""The index of one partition: plain dicts and arrays, no object per record.

`acked` is filled in the order of acknowledgements and `writers` in that of invocations; `checks.sends` relies on it.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate

from penstock.verify.history import Partition, Value
from penstock.verify.operations import Operation

INSIDE = 1
SUBSCRIBED = 2


class PartitionIndex:
    """Offsets, values, writers and readers of one partition."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.writers: dict[Value, Operation] = {}
        self.failed: dict[Value, Operation] = {}
        self.acked: dict[int, Value] = {}
        self.ack_clashes: list[tuple[int, Value]] = []
        self.reads: dict[int, Value] = {}
        self.read_clashes: list[tuple[int, Value, Operation]] = []
        self.reads_without_writer: list[tuple[int, Value, Operation]] = []
        """Values that had no writer when they were read."""
        self.read_offsets: dict[Value, int] = {}
        """The offset at which a value was read, set by `settle`: the last one if there are several."""
        self.highest_read = -1
        self._run_first = array("q")
        self._run_last = array("q")
        self._run_operations: list[Operation] = []
        self._run_highest = array("q")
        self._jumps = array("q")
        self._jump_operations: list[Operation] = []
        self._first_readers: dict[int, Operation] | None = None
        self._passed: tuple[list[int], list[int]] | None = None

    def add_ack(self, offset: int, value: Value) -> None:
        """Records that a value was acknowledged at an offset."""
        if self.acked.setdefault(offset, value) != value:
            self.ack_clashes.append((offset, value))

    def add_run(self, first: int, last: int, operation: Operation) -> None:
        """Records that an operation read from the first to the last offset."""
        self._run_first.append(first)
        self._run_last.append(last)
        self._run_operations.append(operation)

    def add_jump(self, from_offset: int, to_offset: int, flags: int, operation: Operation) -> None:
        """Records that a reader continued at an offset other than the next."""
        self._jumps.extend((from_offset, to_offset, flags))
        self._jump_operations.append(operation)

    def jumps(self) -> Iterator[tuple[int, int, int, Operation]]:
        """All jumps, in the order in which they were seen: from, to, flags, operation."""
        return zip(self._jumps[::3], self._jumps[1::3], self._jumps[2::3], self._jump_operations, strict=True)

    @property
    def has_jumps(self) -> bool:
        """Whether any reader continued at an offset other than the next."""
        return bool(self._jump_operations)

    def settle(self) -> None:
        """Computes `read_offsets` and `highest_read`, once all reads are indexed."""
        self.read_offsets = dict(zip(self.reads.values(), self.reads.keys(), strict=True))
        self.highest_read = max(self.reads, default=-1)
        for offset, value, _ in self.read_clashes:
            self.read_offsets.setdefault(value, offset)

    def acknowledgements(self) -> Iterator[tuple[int, Value]]:
        """Every acknowledged (offset, value)."""
        yield from self.acked.items()
        yield from self.ack_clashes

    def first_reader(self, offset: int) -> tuple[Operation, ...]:
        """The first operation that read this offset, if one did."""
        if self._first_readers is None:
            self._first_readers = self._find_first_readers()
        found = self._first_readers.get(offset)
        return () if found is None else (found,)

    def first_reader_past(self, offset: int) -> tuple[Operation, ...]:
        """The first operation that read this offset or a higher one, if one did."""
        if len(self._run_highest) < len(self._run_last):
            self._run_highest = array("q", accumulate(self._run_last, max))
        place = bisect_left(self._run_highest, offset)
        return (self._run_operations[place],) if place < len(self._run_operations) else ()

    def was_passed(self, offset: int) -> bool:
        """Whether a reader moved from below this offset to above it without a new assignment."""
        if self._passed is None:
            self._passed = self._find_passed()
        starts, ends = self._passed
        place = bisect_right(starts, offset) - 1
        return place >= 0 and offset < ends[place]

    def _find_passed(self) -> tuple[list[int], list[int]]:
        """The gaps of all jumps as disjoint ranges."""
        starts: list[int] = []
        ends: list[int] = []
        for from_offset, to_offset, flags, _ in sorted(self.jumps(), key=lambda jump: jump[0]):
            if to_offset <= from_offset or flags == SUBSCRIBED:
                continue
            if ends and from_offset < ends[-1]:
                ends[-1] = max(ends[-1], to_offset)
            else:
                starts.append(from_offset + 1)
                ends.append(to_offset)
        return starts, ends

    def _find_first_readers(self) -> dict[int, Operation]:
        offsets = sorted(self.reads)
        passed: dict[Operation, set[int]] = {}
        for from_offset, to_offset, flags, operation in self.jumps():
            if flags & INSIDE:
                gap = offsets[bisect_right(offsets, from_offset) : bisect_left(offsets, to_offset)]
                if gap:
                    passed.setdefault(operation, set()).update(gap)
        readers: dict[int, Operation] = {}
        for first, last, operation in zip(self._run_first, self._run_last, self._run_operations, strict=True):
            skipped = passed.get(operation, ())
            for offset in offsets[bisect_left(offsets, first) : bisect_right(offsets, last)]:
                if offset not in skipped:
                    readers.setdefault(offset, operation)
        return readers
