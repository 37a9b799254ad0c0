"""Sends keep their order: within one producer, and in real time between all of them.

What a producer sent first has the lower offset. What was acknowledged before another send began has the lower offset
too, whoever sent it. A pair that breaks both rules is reported under the first. Equal offsets are inconsistent, not
reordered.
"""

from collections.abc import Iterator
from itertools import chain

from penstock.verify.findings import Finding, Kind
from penstock.verify.history import Value
from penstock.verify.index import Index
from penstock.verify.operations import NEVER, Operation
from penstock.verify.partitions import PartitionIndex


def find_reordered_sends(index: Index) -> Iterator[Finding]:
    """One pass over each partition's sends in the order of invocation, next to its acknowledgements in theirs."""
    for log in index.partitions.values():
        yield from _find_in_partition(log)


def _find_in_partition(log: PartitionIndex) -> Iterator[Finding]:
    writers = log.writers
    offsets: dict[Value, int] = dict(log.read_offsets)
    offsets.update(zip(log.acked.values(), log.acked.keys(), strict=True))
    latest: dict[int, tuple[int, Operation]] = {}
    acknowledgements = chain(((writers[value].completed, offset) for offset, value in log.acked.items()), [(NEVER, -1)])
    completed, acked_offset = next(acknowledgements)
    floor = -1
    for value, operation in writers.items():
        invoked = operation.invoked
        while completed < invoked:
            floor = max(floor, acked_offset)
            completed, acked_offset = next(acknowledgements)
        offset = offsets.get(value)
        if offset is None or operation.outcome == "fail":
            continue
        order = operation.producer.order
        before = latest.get(order)
        latest[order] = offset, operation
        if before is not None and offset < before[0]:
            yield _nonmonotonic(log, value, offset, operation, before)
        elif offset < floor:
            yield _realtime(log, value, offset, operation, floor)


def _nonmonotonic(
    log: PartitionIndex, value: Value, offset: int, operation: Operation, before: tuple[int, Operation]
) -> Finding:
    kind = Kind.INT_NONMONOTONIC_SEND if before[1] is operation else Kind.NONMONOTONIC_SEND
    sentence = (
        f"{operation.process} sent {value!r} to {log.partition} after the record at offset {before[0]}, "
        f"but it lies at offset {offset}."
    )
    operations = (operation,) if before[1] is operation else (before[1], operation)
    return Finding(kind, sentence, operations, log.partition)


def _realtime(log: PartitionIndex, value: Value, offset: int, operation: Operation, floor: int) -> Finding:
    earlier = log.writers[log.acked[floor]]
    sentence = (
        f"{log.partition} acknowledged offset {floor} before the send of {value!r} began, "
        f"but {value!r} lies at offset {offset}."
    )
    return Finding(Kind.REALTIME_ORDER, sentence, (earlier, operation), log.partition)
