"""Operations and transactions as the checks use them: small, because a long history has a million of them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from penstock.verify.history import EventType, Function, Partition, Process, Value

NEVER = 1 << 62
"""Later than every event: the end of an operation without a completion."""


@dataclass(slots=True, eq=False)
class Producer:
    """A process between two crashes, under one producer id and epoch."""

    process: Process
    order: int
    """The sends of all producers with the same number must keep their order."""
    producer_id: int | None = None
    producer_epoch: int | None = None
    client: str | None = None


@dataclass(slots=True, eq=False)
class Operation:
    """One operation; `invoked` and `completed` are indexes of events."""

    invoked: int
    function: Function
    producer: Producer
    outcome: EventType = "info"
    completed: int = NEVER

    @property
    def process(self) -> Process:
        """The process that invoked the operation."""
        return self.producer.process

    def __str__(self) -> str:
        return f"{self.function} {self.invoked} of {self.process} ({self.outcome})"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = {
            "i": self.invoked,
            "completed": None if self.completed == NEVER else self.completed,
            "p": self.process,
            "f": self.function,
            "type": self.outcome,
            "pid": self.producer.producer_id,
            "epoch": self.producer.producer_epoch,
            "client": self.producer.client,
        }
        return {name: value for name, value in found.items() if value is not None}


@dataclass(slots=True, eq=False)
class Transaction:
    """A transaction: its sends, and the transactions whose values it read."""

    operation: Operation
    sends: list[tuple[Partition, Value]]
    offsets: list[int | None] = field(default_factory=list)
    """The offset of each send by its delivery report, once the transaction has ended."""
    sources: set[int] = field(default_factory=set)
    """The `invoked` of transactions whose values it polled."""

    def places(self) -> Iterator[tuple[Partition, Value, int | None]]:
        """Partition, value and offset of every send; the offset is None without a delivery report."""
        for (partition, value), offset in zip_longest(self.sends, self.offsets):
            yield partition, value, offset
