"""What a run promised: where the checks must be milder than usual, or may be stricter."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from penstock.verify.findings import Kind
from penstock.verify.history import Partition, Process, Value


def id_before_slash(value: Value) -> Hashable:
    """The default form of an output: `<input id>/<attempt>`."""
    return str(value).partition("/")[0]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Consume-transform-produce: every value in `inputs` must lead to exactly one record in `outputs`."""

    inputs: frozenset[Partition]
    outputs: frozenset[Partition]
    input_of: Callable[[Value], Hashable] = id_before_slash
    """Which input an output came from."""
    id_of: Callable[[Value], Hashable] = str
    """The same id, of an input."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The defaults hold for a run without retention or compaction that ends with everybody reading to the end."""

    waived: frozenset[Kind] = frozenset()
    """Kinds that are only noted."""
    ends_with_full_read: bool = True
    """False for a history that was cut: what nobody has read yet is then no finding."""
    final_readers: frozenset[Process] = frozenset()
    """Who read everything anew after all others had ended: what they did not find is gone, whoever saw it before."""
    log_starts: Mapping[Partition, int] = field(default_factory=dict)
    """Retention was allowed to remove what lies below."""
    compacted: frozenset[Partition] = frozenset()
    """Compaction may remove any record here, so that nothing counts as lost or skipped."""
    settled_after_ns: int | None = None
    """From here on (faults healed, transaction time-out passed) the last stable offset is to be the high watermark."""
    has_write_order: bool = False
    """Also looks for cycles through the order of writes (G0); they are only noted."""
    pipeline: Pipeline | None = None
    findings_per_kind_max: int = 100
    """How many findings of a kind are kept; all are counted."""

    def must_survive(self, partition: Partition, offset: int) -> bool:
        """Whether nothing but a fault can have removed the record."""
        return partition not in self.compacted and offset >= self.log_starts.get(partition, 0)


DEFAULT_RULES = Rules()
