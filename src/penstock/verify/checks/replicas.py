"""In-sync replicas hold the same batches from the highest log start offset to the high watermark.

Every replica compacts at its own pace, so replicas of a compacted log may differ in the records already removed.
Offsets present in two replicas hold the same record, and a record that one of them lacks is a tombstone or is
superseded there by a later record of the same key.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from penstock.verify.findings import Finding, Kind
from penstock.verify.history import Partition


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a replica; equal contents mean equal batches."""

    base_offset: int
    end_offset: int
    content: Hashable
    """The bytes, or a strong hash of them."""


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """One replica: its log start offset, and its batches from there, in order."""

    start_offset: int
    batches: Iterable[Batch]


@dataclass(frozen=True, slots=True)
class Row:
    """One record of a compacted replica."""

    offset: int
    key: bytes
    value: bytes | None


def find_divergence(partition: Partition, replicas: Mapping[str, ReplicaLog], high_watermark: int) -> Iterator[Finding]:
    """Yields the first difference of every replica from the first one; batches are read once, in lockstep."""
    start = max((replica.start_offset for replica in replicas.values()), default=0)
    streams = {name: _between(replica.batches, start, high_watermark) for name, replica in replicas.items()}
    if not streams or start >= high_watermark:
        return
    (model, leading), *others = streams.items()
    open_streams = dict(others)
    reached = start
    while open_streams:
        batch = next(leading, None)
        for name in list(open_streams):
            other = next(open_streams[name], None)
            if batch != other:
                yield _difference(partition, reached, (model, batch), (name, other))
                del open_streams[name]
        if batch is None:
            break
        reached = batch.end_offset
    # All replicas agree, but all may end too early.
    if open_streams and reached < high_watermark:
        sentence = f"All replicas of {partition} end at {reached}, below the high watermark {high_watermark}."
        yield Finding(Kind.REPLICA_DIVERGENCE, sentence, (), partition)


def _between(batches: Iterable[Batch], start: int, end: int) -> Iterator[Batch]:
    return (batch for batch in batches if batch.end_offset > start and batch.base_offset < end)


def _difference(
    partition: Partition, reached: int, one: tuple[str, Batch | None], other: tuple[str, Batch | None]
) -> Finding:
    sentence = f"Replicas of {partition} are equal up to {reached}; then {_named(*one)}, {_named(*other)}."
    return Finding(Kind.REPLICA_DIVERGENCE, sentence, (), partition)


def _named(name: str, batch: Batch | None) -> str:
    if batch is None:
        return f"{name} ends"
    return f"{name} has {batch.base_offset} to {batch.end_offset} ({str(batch.content)[:24]!r})"


def find_compacted_divergence(
    partition: Partition, replicas: Mapping[str, tuple[int, Iterable[Row]]], high_watermark: int
) -> Iterator[Finding]:
    """Yields differences between compacted replicas, each given as its log start offset and its surviving records."""
    start = max((first for first, _ in replicas.values()), default=0)
    logs = {
        name: {row.offset: row for row in rows if start <= row.offset < high_watermark}
        for name, (_, rows) in replicas.items()
    }
    last: dict[str, dict[bytes, int]] = {
        name: {rows[offset].key: offset for offset in sorted(rows)} for name, rows in logs.items()
    }
    if not logs:
        return
    (model, first_rows), *others = logs.items()
    for name, rows in others:
        for offset in sorted(first_rows.keys() | rows.keys()):
            one, two = first_rows.get(offset), rows.get(offset)
            if one is not None and two is not None:
                if one != two:
                    sentence = f"Offset {offset} of {partition} holds different records on {model} and {name}."
                    yield Finding(Kind.REPLICA_DIVERGENCE, sentence, (), partition)
                continue
            row, lacking = (one, name) if one is not None else (two, model)
            assert row is not None
            if row.value is not None and last[lacking].get(row.key, -1) <= offset:
                sentence = f"{lacking} lacks offset {offset} of {partition}, which no later record of its key replaces."
                yield Finding(Kind.REPLICA_DIVERGENCE, sentence, (), partition)
