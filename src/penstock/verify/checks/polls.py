"""Polls move forward and skip no record, inside one operation and between consecutive operations of a process.

A reader skips a record if it passes one that another reader has read; a record that no reader read is lost, not
skipped. Whether a gap contains a read record is known only at the end, so the index keeps the jumps. Jumps between
operations of a subscribed process are only noted: its partitions may have been assigned elsewhere in between.
"""

from bisect import bisect_right
from collections.abc import Iterator

from penstock.verify.findings import Finding, Kind, Severity
from penstock.verify.index import Index
from penstock.verify.operations import Operation
from penstock.verify.partitions import INSIDE, SUBSCRIBED, PartitionIndex
from penstock.verify.rules import Rules


def find_poll_jumps(index: Index, rules: Rules) -> Iterator[Finding]:
    """Yields polls that went back, repeated an offset or skipped a record."""
    for partition, log in index.partitions.items():
        if not log.has_jumps:
            continue
        failed = log.failed
        visible = sorted(
            offset
            for offset, value in log.reads.items()
            if value not in failed and rules.must_survive(partition, offset)
        )
        visible.append(1 << 62)
        for from_offset, to_offset, flags, operation in log.jumps():
            if to_offset <= from_offset:
                kind = Kind.INT_NONMONOTONIC_POLL if flags & INSIDE else Kind.NONMONOTONIC_POLL
                sentence = f"{operation.process} read offset {to_offset} of {partition} after offset {from_offset}."
                yield _finding(kind, sentence, operation, log, flags)
                continue
            passed = visible[bisect_right(visible, from_offset)]
            if passed < to_offset:
                kind = Kind.INT_POLL_SKIP if flags & INSIDE else Kind.POLL_SKIP
                sentence = (
                    f"{operation.process} went from offset {from_offset} of {partition} to {to_offset} "
                    f"and left out {log.reads[passed]!r} at offset {passed}."
                )
                yield _finding(kind, sentence, operation, log, flags, log.first_reader(passed))


def _finding(
    kind: Kind,
    sentence: str,
    operation: Operation,
    log: PartitionIndex,
    flags: int,
    others: tuple[Operation, ...] = (),
) -> Finding:
    is_normal = flags & SUBSCRIBED and not flags & INSIDE
    severity = Severity.NOTED if is_normal else Severity.FAILS
    return Finding(kind, sentence, (operation, *others), log.partition, severity)
