"""Partition histories from the metadata log: moves, and whether a partition ever lacked a replica meanwhile.

Polling brokers would miss short-lived states; the log has everything.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from penstock.metadata.declare import MetadataRecord
from penstock.metadata.records import PartitionChangeRecord, PartitionRecord
from penstock.server.quorum.metadata_log import METADATA_LOG, records_in, whole_batches

Key: TypeAlias = tuple[bytes, int]


@dataclass
class Life:
    """The state of a partition after some record."""

    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()

    @property
    def missing(self) -> set[int]:
        """Replicas that should be in sync and are not; replicas that are being added need not be."""
        return set(self.replicas) - set(self.adding) - set(self.isr)


@dataclass
class Histories:
    """The histories of all partitions."""

    lives: dict[Key, Life] = field(default_factory=dict)
    lacks: list[str] = field(default_factory=list)
    """Each time at which a replica that should have been in sync was not."""
    moves: int = 0
    """Number of replicas that were added by moves."""
    arriving_most: int = 0
    """The most replicas that were being added to one broker at a time."""

    def follow(self, records: Iterable[MetadataRecord]) -> None:
        """Applies the next records."""
        for record in records:
            if isinstance(record, PartitionRecord | PartitionChangeRecord):
                self._take(record)

    def _take(self, record: PartitionRecord | PartitionChangeRecord) -> None:
        key = record.topic_id, record.partition_id
        life = self.lives.setdefault(key, Life())
        before = life.adding
        if record.replicas is not None:
            life.replicas = tuple(record.replicas)
        if record.isr is not None:
            life.isr = tuple(record.isr)
        if record.adding_replicas is not None:
            life.adding = tuple(record.adding_replicas)
        if life.missing:
            self.lacks.append(f"partition {key[1]} of {key[0].hex()}: {sorted(life.missing)} not in sync")
        if new := set(life.adding) - set(before):
            self.moves += len(new)
            arriving = Counter(each for other in self.lives.values() for each in other.adding)
            self.arriving_most = max(self.arriving_most, *arriving.values())


def histories_of(data: Path) -> Histories:
    """Reads the metadata log of a node, which may be running."""
    found = Histories()
    found.follow(_records(data / "logs" / METADATA_LOG))
    return found


def _records(directory: Path) -> Iterator[MetadataRecord]:
    for path in sorted(directory.glob("*.log")):
        for batch in whole_batches(path.read_bytes()):
            yield from records_in(batch)
