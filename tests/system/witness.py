"""Fates of batches that idempotent producers sent to a node, and whether out-of-order rejections are justified.

A producer that pipelines may get OUT_OF_ORDER_SEQUENCE_NUMBER for batches that followed a rejected batch that has to be
sent again, or that overtook its very first batch. Otherwise the error means that the cluster has lost state.
"""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.model.errors import ErrorCode
from penstock.records.header import BatchView
from penstock.server.handlers.records.produce import ProduceHandler

NO_PRODUCER: Final = -1
EXPLAINS_NS: Final = 60_000_000_000
"""How long a rejection explains others of its producer: while the producer sends that batch again."""

Key: TypeAlias = tuple[str, int, int]


class Fate(NamedTuple):
    """The fate of a batch: it was rejected, or it was its producer's first to be appended there."""

    time_ns: int
    place: str
    producer_id: int
    producer_epoch: int
    sequence: int
    code: ErrorCode

    @property
    def key(self) -> Key:
        """The partition and producer that the sequence belongs to."""
        return self.place, self.producer_id, self.producer_epoch

    @property
    def is_out_of_order(self) -> bool:
        """Whether the broker has not seen the preceding sequence."""
        return self.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def watch(path: Path) -> None:
    """Records the fates of batches from now on."""
    append = ProduceHandler._append
    out = path.open("a", buffering=1, encoding="utf-8")
    begun: set[Key] = set()

    def told(handler: ProduceHandler, part: Any, *arguments: Any, **options: Any) -> Any:
        outcome = append(handler, part, *arguments, **options)
        topic, index, records = part
        if records is None or outcome is None:  # None: called again once the records are opened
            return outcome
        batch = BatchView(records)
        key = f"{topic if isinstance(topic, str) else topic.hex()}-{index}", batch.producer_id, batch.producer_epoch
        if batch.producer_id != NO_PRODUCER and (outcome.error_code or key not in begun):
            if not outcome.error_code:
                begun.add(key)
            words = (time.monotonic_ns(), *key, batch.base_sequence, outcome.error_code.value)
            out.write(" ".join(map(str, words)) + "\n")
        return outcome

    setattr(ProduceHandler, "_append", told)  # noqa: B010 - a class's own method


def fates_in(lines: Iterable[str]) -> Iterator[Fate]:
    """Parses the recorded fates. A last line that a kill cut off is left out."""
    for line in lines:
        if line.endswith("\n"):
            time_ns, place, *numbers, code = line.split()
            producer_id, epoch, sequence = map(int, numbers)
            yield Fate(int(time_ns), place, producer_id, epoch, sequence, ErrorCode(int(code)))


def unexplained(fates: Iterable[Fate]) -> list[Fate]:
    """Sequences that were rejected as out of order without a reason."""
    refused: dict[Key, list[Fate]] = {}
    begun_ns: dict[Key, int] = {}
    out_of_order = []
    for fate in sorted(fates):
        if fate.is_out_of_order:
            out_of_order.append(fate)
        elif fate.code is ErrorCode.NONE:
            begun_ns.setdefault(fate.key, fate.time_ns)
        elif fate.code.is_retriable:
            refused.setdefault(fate.key, []).append(fate)

    def has_reason(fate: Fate) -> bool:
        if fate.key in begun_ns and fate.time_ns < begun_ns[fate.key]:
            return True
        return any(
            earlier.sequence < fate.sequence and abs(fate.time_ns - earlier.time_ns) < EXPLAINS_NS
            for earlier in refused.get(fate.key, ())
        )

    return [fate for fate in out_of_order if not has_reason(fate)]
