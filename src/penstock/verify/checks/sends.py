"""Sends keep their order, within one producer and in real time across producers.

A record that a producer sent earlier has the lower offset. A record acknowledged before another send began has the
lower offset too, even across producers. A pair that breaks both rules is reported under the first. Equal offsets are
inconsistent, not reordered.
"""

from collections.abc import Iterator

from penstock.verify.findings import Finding, Kind
from penstock.verify.history import Value
from penstock.verify.index import Index
from penstock.verify.operations import NEVER, Operation
from penstock.verify.partitions import PartitionIndex

_NO_MORE: tuple[int, Value | None] = (-1, None)


def find_reordered_sends(index: Index) -> Iterator[Finding]:
    """Scans each partition's sends in invocation order, merged with its acknowledgements in completion order."""
    for log in index.partitions.values():
        yield from _find_in_partition(log)


def _find_in_partition(log: PartitionIndex) -> Iterator[Finding]:
    writers, read_offsets = log.writers, log.read_offsets
    acked_offsets = dict(zip(log.acked.values(), log.acked.keys(), strict=True))
    latest: dict[int, tuple[int, Operation]] = {}
    acknowledgements = iter(log.acked.items())
    acked_offset, acked_value = next(acknowledgements, _NO_MORE)
    completed = _completed(writers, acked_value)
    floor = -1
    for value, operation in writers.items():
        invoked = operation.invoked
        while completed < invoked:
            floor = max(floor, acked_offset)
            acked_offset, acked_value = next(acknowledgements, _NO_MORE)
            completed = _completed(writers, acked_value)
        offset = acked_offsets.get(value)
        if offset is None:
            offset = read_offsets.get(value)
        if offset is None or operation.outcome == "fail":
            continue
        order = operation.producer.order
        before = latest.get(order)
        latest[order] = offset, operation
        if before is not None and offset < before[0]:
            yield _nonmonotonic(log, value, offset, operation, before)
        elif offset < floor:
            yield _realtime(log, value, offset, operation, floor)


def _completed(writers: dict[Value, Operation], value: Value | None) -> int:
    return NEVER if value is None else writers[value].completed


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
