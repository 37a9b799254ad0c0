"""Nothing acknowledged goes missing: lost writes, and what nobody had read at the end.

At the end everybody has read everything, so an acknowledged value below the highest offset that anybody read must have
been read by somebody. Above that nothing is proven lost, but nothing may be left unseen either. In a history that was
cut, only what a reader passed is lost. A transaction of which a part is visible is torn, not lost. Where final readers
are named, what others saw before them does not count: an end that was cut off is gone, and a value is lost where they
find another one.
"""

from collections.abc import Iterator

from penstock.verify.findings import Finding, Kind
from penstock.verify.index import Index
from penstock.verify.operations import Operation
from penstock.verify.partitions import PartitionIndex
from penstock.verify.rules import Rules


def find_losses(index: Index, rules: Rules) -> Iterator[Finding]:
    """Acknowledged values that nobody read, and values that were read and are gone."""
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
