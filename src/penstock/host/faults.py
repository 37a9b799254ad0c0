"""Faults of a lossy disk: random faults, and errors ordered for specific calls."""

from dataclasses import dataclass

from penstock.host.paths import trouble


@dataclass(slots=True)
class Faults:
    """Random faults of a disk; may be changed at any time. Probabilities are per call, from 0 to 1."""

    is_torn: bool = False
    """A power cut keeps a random part of the unsynced data, instead of nothing."""
    sync_lies: bool = False
    """Syncs return at once and make nothing durable."""
    open_error: float = 0.0
    read_error: float = 0.0
    write_error: float = 0.0
    sync_error: float = 0.0
    flip_on_read: float = 0.0
    """Flips one bit of the returned data; the file itself is intact."""
    capacity_bytes: int | None = None
    """Total size of all files; beyond it, ENOSPC."""


@dataclass(slots=True)
class _Order:
    operation: str
    path: str | None
    count: int
    code: int


class Orders:
    """Errors that were ordered for future calls."""

    __slots__ = ("_orders",)

    def __init__(self) -> None:
        self._orders: list[_Order] = []

    def add(self, operation: str, path: str | None, count: int, code: int) -> None:
        """Makes the next `count` calls of the operation fail; without a path, on any path."""
        assert count > 0
        self._orders.append(_Order(operation, path, count, code))

    def clear(self) -> None:
        """Cancels all orders."""
        self._orders.clear()

    def raise_if_due(self, operation: str, path: str) -> None:
        """Raises the error that was ordered for this call, if any."""
        for order in self._orders:
            if order.operation == operation and (order.path is None or order.path == path):
                order.count -= 1
                if order.count == 0:
                    self._orders.remove(order)
                raise trouble(order.code, path)
