"""Nothing acknowledged goes missing: lost writes, and what nobody had read at the end.

At the end everybody has read everything, so an acknowledged value below the highest offset that anybody read must have
been read by somebody. Above that nothing is proven lost, but nothing may be left unseen either. In a history that was
cut, only what a reader passed is lost. A transaction of which a part is visible is torn, not lost.
"""

from collections.abc import Iterator

from penstock.verify.findings import Finding, Kind
from penstock.verify.index import Index
from penstock.verify.operations import Operation
from penstock.verify.rules import Rules


def find_losses(index: Index, rules: Rules) -> Iterator[Finding]:
    """Acknowledged values that nobody read."""
    for partition, log in index.partitions.items():
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


def _is_torn(index: Index, writer: Operation) -> bool:
    transaction = index.transactions.get(writer.invoked)
    return transaction is not None and index.is_visible(transaction)
