"""All checks over one history."""

from collections.abc import Iterable

from penstock.verify.checks.commits import CommitWatcher
from penstock.verify.checks.cycles import find_cycles
from penstock.verify.checks.loss import find_losses
from penstock.verify.checks.offsets import find_duplicates, find_foreign_values, find_inconsistent_offsets
from penstock.verify.checks.pipeline import find_pipeline_faults
from penstock.verify.checks.polls import find_poll_jumps
from penstock.verify.checks.sends import find_reordered_sends
from penstock.verify.checks.transactions import find_aborted_reads, find_precommitted_reads, find_torn_transactions
from penstock.verify.checks.watermarks import WatermarkWatcher
from penstock.verify.findings import Findings
from penstock.verify.history import Event, read_history
from penstock.verify.index import Index
from penstock.verify.report import Counts, Report
from penstock.verify.rules import DEFAULT_RULES, Rules


def check(history: Iterable[Event], rules: Rules = DEFAULT_RULES) -> Report:
    """Runs all checks over a history, which may be a stream. Raises HistoryError if the history is malformed."""
    watermarks = WatermarkWatcher(rules.settled_after_ns)
    commits = CommitWatcher()
    index = Index(
        {
            "list_offsets": watermarks,
            "high_watermark": watermarks,
            "commit": commits,
            "fetch_committed": commits,
        }
    )
    index.read(history)
    findings = Findings(rules.findings_per_kind_max, rules.waived)
    findings.extend(find_inconsistent_offsets(index))
    findings.extend(find_duplicates(index))
    findings.extend(find_foreign_values(index))
    findings.extend(find_losses(index, rules))
    findings.extend(find_reordered_sends(index))
    findings.extend(find_poll_jumps(index, rules))
    findings.extend(watermarks.findings)
    findings.extend(commits.findings)
    findings.extend(find_aborted_reads(index))
    findings.extend(find_precommitted_reads(index))
    findings.extend(find_torn_transactions(index, rules))
    findings.extend(find_cycles(index, rules))
    findings.extend(find_pipeline_faults(index, rules))
    return Report(_counts(index), findings)


def check_lines(lines: Iterable[str], rules: Rules = DEFAULT_RULES) -> Report:
    """Runs all checks over a history in text form, such as an open file."""
    return check(read_history(lines), rules)


def _counts(index: Index) -> Counts:
    logs = index.partitions.values()
    ok, failed = index.outcomes["ok"], index.outcomes["fail"]
    return Counts(
        operations=index.operations,
        ok=ok,
        failed=failed,
        unknown=index.operations - ok - failed,
        processes=index.processes,
        partitions=len(index.partitions),
        transactions=len(index.transactions),
        records_sent=index.records_sent,
        records_acked=sum(len(log.acked) + len(log.ack_clashes) for log in logs),
        records_polled=index.records_polled,
        records_read=sum(len(log.reads) for log in logs),
        offset_questions=index.functions["list_offsets"],
        watermark_questions=index.functions["high_watermark"],
        commits=index.functions["commit"],
    )
