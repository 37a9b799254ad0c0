"""Nothing acknowledged goes missing: lost writes, and what nobody had read at the end.

Whoever read an offset has passed everything below it, so an acknowledged value below the highest offset read by anybody
must have been read by somebody. Above that, nothing is proven lost, but at the end of a run nothing may be left unseen.
A transaction of which a part is visible is not lost but torn (`checks.transactions`).
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
            if value in read_offsets or not rules.must_survive(partition, offset):
                continue
            writer = log.writers[value]
            if offset > log.highest_read:
                if rules.ends_with_full_read:
                    sentence = f"{value!r} was acknowledged at offset {offset} of {partition}, but nobody read so far."
                    yield Finding(Kind.UNSEEN, sentence, (writer,), partition)
            elif not _is_torn(index, writer):
                sentence = (
                    f"{value!r} was acknowledged at offset {offset} of {partition}, and never read, "
                    f"although offset {log.highest_read} was."
                )
                yield Finding(Kind.LOST_WRITE, sentence, (writer, *log.first_reader_past(offset)), partition)


def _is_torn(index: Index, writer: Operation) -> bool:
    transaction = index.transactions.get(writer.invoked)
    return transaction is not None and index.is_visible(transaction)
