"""Transactions are atomic and only committed values are read: finds aborted reads, own reads, torn transactions.

Readers are expected to use read_committed. A failed plain send is treated like an aborted transaction: `fail` means
that it definitely did not happen.
"""

from collections.abc import Iterator

from penstock.verify.findings import Finding, Kind
from penstock.verify.index import Index
from penstock.verify.operations import Operation, Transaction
from penstock.verify.rules import Rules


def find_aborted_reads(index: Index) -> Iterator[Finding]:
    """Yields reads of values whose send or transaction failed."""
    for partition, log in index.partitions.items():
        for value, writer in log.failed.items():
            offset = log.read_offsets.get(value)
            if offset is not None:
                sentence = (
                    f"{value!r} was read at offset {offset} of {partition}, although its {writer.function} failed."
                )
                yield Finding(Kind.ABORTED_READ, sentence, (writer, *log.first_reader(offset)), partition)


def find_precommitted_reads(index: Index) -> Iterator[Finding]:
    """Yields transactions that polled a value they had sent themselves."""
    for transaction in index.transactions.values():
        operation = transaction.operation
        if operation.invoked in transaction.sources:
            sentence = f"Transaction {operation.invoked} of {operation.process} polled a value that it had sent itself."
            yield Finding(Kind.PRECOMMITTED_READ, sentence, (operation,))


def find_torn_transactions(index: Index, rules: Rules) -> Iterator[Finding]:
    """Yields transactions with a visible value and a value that is not visible although readers passed it."""
    for transaction in index.transactions.values():
        operation = transaction.operation
        if operation.outcome == "fail" or not index.is_visible(transaction):
            continue
        missing = [
            (partition, value)
            for partition, value, offset in transaction.places()
            if value not in index.partitions[partition].read_offsets and index.is_overdue(rules, partition, offset)
        ]
        if missing:
            seen, witnesses = _first_visible(index, transaction)
            names = ", ".join(f"{value!r} in {partition}" for partition, value in missing[:5])
            sentence = f"Of transaction {operation.invoked} of {operation.process}, {seen} is visible, but not {names}."
            yield Finding(Kind.TORN_TRANSACTION, sentence, (operation, *witnesses), missing[0][0])


def _first_visible(index: Index, transaction: Transaction) -> tuple[str, tuple[Operation, ...]]:
    for partition, value in transaction.sends:
        log = index.partitions[partition]
        if value in log.read_offsets:
            return f"{value!r} in {partition}", log.first_reader(log.read_offsets[value])
    raise AssertionError("a visible transaction has a visible value")
