"""Committed offsets are not lost: a fetched offset is not below the commits acknowledged before the fetch.

Groups may commit lower offsets on purpose, so the bound is the lowest offset that may be in force: of the last
acknowledged commit, commits concurrent with it, commits in flight, and commits of unknown outcome until the next
generation fences them.
"""

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.verify.findings import Finding, Kind
from penstock.verify.history import Event, Partition
from penstock.verify.operations import Operation

Place: TypeAlias = tuple[str | int, Partition]
"""A group and a partition."""


@dataclass(slots=True)
class _Committed:
    """The commits that may be in force for one group and partition."""

    acknowledged: int | None = None
    writer: Operation | None = None
    generation: int = -1
    under_way: dict[int, int] = field(default_factory=dict)
    unknown: list[tuple[int, int]] = field(default_factory=list)
    """(generation, offset) of commits of unknown outcome."""
    questions: dict[int, int] = field(default_factory=dict)
    """Offset fetches in flight, each with the lowest offset that it may return."""

    def least(self) -> int:
        """The lowest offset that may be in force now; -1 if no commit was acknowledged."""
        if self.acknowledged is None:
            return -1
        candidates = [self.acknowledged, *self.under_way.values(), *(offset for _, offset in self.unknown)]
        return min(candidates)


class CommitWatcher:
    """Watches `commit` ([group, partition, offset], and its generation if it has one) and `fetch_committed`."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self._places: dict[Place, _Committed] = {}

    def invoked(self, operation: Operation, event: Event) -> None:
        """Registers a commit or an offset fetch that was sent."""
        for entry in event.value or ():
            committed = self._place(entry)
            if event.function == "commit":
                offset = entry[2]
                committed.under_way[operation.invoked] = offset
                for question, least in committed.questions.items():
                    committed.questions[question] = min(least, offset)
            else:
                committed.questions[operation.invoked] = committed.least()

    def completed(self, operation: Operation, event: Event, asked: list[Any]) -> None:
        """Applies the outcome of a commit, or checks the result of an offset fetch."""
        if event.function == "commit":
            for entry in asked:
                self._end_commit(entry, operation)
            return
        answers = {(entry[0], entry[1]): entry[2] for entry in event.value or () if event.type == "ok"}
        for entry in asked:
            committed = self._place(entry)
            least = committed.questions.pop(operation.invoked)
            answer = answers.get((entry[0], entry[1]), least)
            answer = -1 if answer is None else answer
            if answer < least:
                sentence = (
                    f"Group {entry[0]} fetched {'no offset' if answer < 0 else f'offset {answer}'} for {entry[1]}, "
                    f"although a commit of {committed.acknowledged} was acknowledged before."
                )
                writers = () if committed.writer is None else (committed.writer,)
                self.findings.append(Finding(Kind.OFFSET_COMMIT_REGRESS, sentence, (*writers, operation), entry[1]))

    def _place(self, entry: list[Any]) -> _Committed:
        return self._places.setdefault((entry[0], entry[1]), _Committed())

    def _end_commit(self, entry: list[Any], operation: Operation) -> None:
        committed = self._place(entry)
        offset = committed.under_way.pop(operation.invoked)
        generation = entry[3] if len(entry) > 3 else -1
        if operation.outcome == "info":
            committed.unknown.append((generation, offset))
        elif operation.outcome == "ok":
            if generation > committed.generation:
                committed.unknown = [pair for pair in committed.unknown if pair[0] >= generation]
                committed.generation = generation
            writer = committed.writer
            is_after = writer is None or writer.completed < operation.invoked
            if committed.acknowledged is None or is_after:
                committed.acknowledged = offset
            else:
                committed.acknowledged = min(committed.acknowledged, offset)
            committed.writer = operation
