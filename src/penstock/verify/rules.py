"""Options of the checks: where a run needs them to be more lenient, or allows them to be stricter."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from penstock.verify.findings import Kind
from penstock.verify.history import Partition, Process, Value


def id_before_slash(value: Value) -> Hashable:
    """The input id of an output that has the default form, `<input id>/<attempt>`."""
    return str(value).partition("/")[0]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Consume-transform-produce: every value in `inputs` must lead to exactly one record in `outputs`."""

    inputs: frozenset[Partition]
    outputs: frozenset[Partition]
    input_of: Callable[[Value], Hashable] = id_before_slash
    """The id of the input that an output came from."""
    id_of: Callable[[Value], Hashable] = str
    """The id of an input, to compare with `input_of`."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The defaults are for a run without retention or compaction in which all readers read to the end."""

    waived: frozenset[Kind] = frozenset()
    """Kinds that are only noted."""
    ends_with_full_read: bool = True
    """False for a truncated history: a record that was not read yet is then no finding."""
    final_readers: frozenset[Process] = frozenset()
    """Processes that read everything again after all others had ended: a record that they did not find is gone."""
    log_starts: Mapping[Partition, int] = field(default_factory=dict)
    """Offsets below which retention was allowed to remove records."""
    compacted: frozenset[Partition] = frozenset()
    """Partitions in which compaction may remove any record, so that no record counts as lost or skipped."""
    settled_after_ns: int | None = None
    """From then on (faults healed, transaction timeout passed) the last stable offset must be the high watermark."""
    has_write_order: bool = False
    """Whether to search for cycles through the order of writes (G0), too; they are only noted."""
    pipeline: Pipeline | None = None
    findings_per_kind_max: int = 100
    """How many findings of a kind are kept; all are counted."""

    def must_survive(self, partition: Partition, offset: int) -> bool:
        """Whether only a fault can have removed the record."""
        return partition not in self.compacted and offset >= self.log_starts.get(partition, 0)


DEFAULT_RULES = Rules()
