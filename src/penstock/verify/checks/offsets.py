"""Offsets and values map one to one: finds inconsistent offsets, duplicates, and values that were never sent.

Polls and acknowledgements both map offsets to values. Gaps are ignored: transaction markers occupy offsets too.
"""

from collections.abc import Iterator

from penstock.verify.findings import Finding, Kind
from penstock.verify.history import Value
from penstock.verify.index import Index
from penstock.verify.operations import Operation
from penstock.verify.partitions import PartitionIndex


def find_inconsistent_offsets(index: Index) -> Iterator[Finding]:
    """Two values at one offset."""
    for log in index.partitions.values():
        for offset, value, reader in log.read_clashes:
            operations = (reader, *log.first_reader(offset))
            yield _inconsistent(log, offset, (log.reads[offset], value), operations)
        for offset, value in log.ack_clashes:
            operations = (log.writers[log.acked[offset]], log.writers[value])
            yield _inconsistent(log, offset, (log.acked[offset], value), operations)
        reads = log.reads
        for offset, value in log.acked.items():
            read = reads.get(offset, value)
            if read != value:
                operations = (log.writers[value], *log.first_reader(offset))
                yield _inconsistent(log, offset, (value, read), operations)


def _inconsistent(
    log: PartitionIndex, offset: int, values: tuple[Value, Value], operations: tuple[Operation, ...]
) -> Finding:
    sentence = f"{log.partition} has both {values[0]!r} and {values[1]!r} at offset {offset}."
    return Finding(Kind.INCONSISTENT_OFFSETS, sentence, operations, log.partition)


def find_duplicates(index: Index) -> Iterator[Finding]:
    """One value at more than one offset."""
    for log in index.partitions.values():
        is_suspect = len(log.read_offsets) < len(log.reads) or log.read_clashes
        suspects = _read_twice(log) if is_suspect else {}
        read_offsets = log.read_offsets
        for offset, value in log.acknowledgements():
            if read_offsets.get(value, offset) != offset:
                suspects.setdefault(value, {read_offsets[value]}).add(offset)
        for value, offsets in suspects.items():
            if len(offsets) > 1:
                yield _duplicate(log, value, sorted(offsets))


def _read_twice(log: PartitionIndex) -> dict[Value, set[int]]:
    places: dict[Value, set[int]] = {}
    for offset, value in log.reads.items():
        places.setdefault(value, set()).add(offset)
    for offset, value, _ in log.read_clashes:
        places.setdefault(value, set()).add(offset)
    return {value: offsets for value, offsets in places.items() if len(offsets) > 1}


def _duplicate(log: PartitionIndex, value: Value, offsets: list[int]) -> Finding:
    writer = log.writers.get(value)
    readers = [reader for offset in offsets for reader in log.first_reader(offset)]
    operations = tuple(dict.fromkeys([*([writer] if writer else []), *readers]))
    places = ", ".join(map(str, offsets))
    return Finding(Kind.DUPLICATE, f"{log.partition} has {value!r} at offsets {places}.", operations, log.partition)


def find_foreign_values(index: Index) -> Iterator[Finding]:
    """Yields values read before they were sent, or never sent. Other clients filled a partition without any sends."""
    for log in index.partitions.values():
        for offset, value, reader in log.reads_without_writer:
            writer = log.writers.get(value)
            if writer is not None and reader.completed < writer.invoked:
                sentence = f"{value!r} was read at offset {offset} of {log.partition} before anybody sent it."
                yield Finding(Kind.FUTURE_READ, sentence, (reader, writer), log.partition)
            elif writer is None and log.writers:
                sentence = f"{value!r} was read at offset {offset} of {log.partition}, but nobody sent it."
                yield Finding(Kind.PHANTOM_READ, sentence, (reader,), log.partition)
