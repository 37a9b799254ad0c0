"""Acknowledged records are not lost: finds lost writes, and records that no reader had read at the end.

A complete history ends with a full read, so an acknowledged value up to the highest offset read must have been read.
A value above it is not proven lost, but is reported as unseen. In a truncated history, only a value that a reader
passed is lost. A partly visible transaction is torn, not lost. If final readers are named, earlier reads of other
readers do not count: records beyond the end that the final readers reached are unseen, and a value is lost if the
final readers find another value at its offset.
"""

from collections.abc import Iterator

from penstock.verify.findings import Finding, Kind
from penstock.verify.index import Index
from penstock.verify.operations import Operation
from penstock.verify.partitions import PartitionIndex
from penstock.verify.rules import Rules


def find_losses(index: Index, rules: Rules) -> Iterator[Finding]:
    """Yields acknowledged values that no reader read, and values that were read and have disappeared."""
    for partition, log in index.partitions.items():
        if rules.ends_with_full_read and rules.final_readers:
            yield from _find_vanished(index, rules, log)
            yield from _find_overwritten(rules, log)
        read_offsets = log.read_offsets
        for offset, value in log.acknowledgements():
            if value in read_offsets:
                continue
            writer = log.writers[value]
            if index.is_overdue(rules, partition, offset):
                if not _is_torn(index, writer):
                    sentence = (
                        f"{value!r} was acknowledged at offset {offset} of {partition}, but all readers passed it."
                    )
                    yield Finding(Kind.LOST_WRITE, sentence, (writer, *log.first_reader_past(offset)), partition)
            elif rules.ends_with_full_read and rules.must_survive(partition, offset):
                sentence = f"{value!r} was acknowledged at offset {offset} of {partition}, but nobody read so far."
                yield Finding(Kind.UNSEEN, sentence, (writer,), partition)


def _find_vanished(index: Index, rules: Rules, log: PartitionIndex) -> Iterator[Finding]:
    reached = [index.reached(each, log.partition) for each in rules.final_readers]
    ends = [offset for offset in reached if offset is not None]
    if not ends or log.highest_read <= min(ends):
        return
    end = min(ends)
    for offset in sorted(offset for offset in log.reads if offset > end):
        if rules.must_survive(log.partition, offset):
            sentence = (
                f"{log.reads[offset]!r} was read at offset {offset} of {log.partition}, but in the end "
                f"{f'offset {end} was the last' if end >= 0 else 'nothing was there'}."
            )
            yield Finding(Kind.UNSEEN, sentence, log.first_reader(offset), log.partition)


def _find_overwritten(rules: Rules, log: PartitionIndex) -> Iterator[Finding]:
    found = {offset: value for offset, value, reader in log.read_clashes if reader.process in rules.final_readers}
    if not found:
        return
    still_there = {*found.values(), *(value for offset, value in log.reads.items() if offset not in found)}
    for offset, value in log.acknowledgements():
        if offset in found and value in log.read_offsets and value not in still_there:
            sentence = (
                f"{value!r} was acknowledged at offset {offset} of {log.partition} and read there, but in the end "
                f"{found[offset]!r} lies there."
            )
            yield Finding(Kind.LOST_WRITE, sentence, (log.writers[value], *log.first_reader(offset)), log.partition)


def _is_torn(index: Index, writer: Operation) -> bool:
    transaction = index.transactions.get(writer.invoked)
    return transaction is not None and index.is_visible(transaction)
