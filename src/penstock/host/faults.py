"""The faults of a lossy disk: those that chance draws, and those that somebody orders."""

from dataclasses import dataclass

from penstock.host.paths import trouble


@dataclass(slots=True)
class Faults:
    """How the disk misbehaves by itself; may be changed at any time. Chances are per call, from 0 to 1."""

    is_torn: bool = False
    """A power cut keeps a random part of what was not synced, instead of nothing."""
    sync_lies: bool = False
    """Syncs return at once and make nothing durable."""
    open_error: float = 0.0
    read_error: float = 0.0
    write_error: float = 0.0
    sync_error: float = 0.0
    flip_on_read: float = 0.0
    """One bit of what is returned; the file itself is whole."""
    capacity_bytes: int | None = None
    """All files together; beyond it, ENOSPC."""


@dataclass(slots=True)
class _Order:
    operation: str
    path: str | None
    count: int
    code: int


class Orders:
    """Errors that were ordered for coming calls."""

    __slots__ = ("_orders",)

    def __init__(self) -> None:
        self._orders: list[_Order] = []

    def add(self, operation: str, path: str | None, count: int, code: int) -> None:
        """The next `count` such calls fail; without a path, whatever their path is."""
        assert count > 0
        self._orders.append(_Order(operation, path, count, code))

    def clear(self) -> None:
        """Takes all orders back."""
        self._orders.clear()

    def raise_if_due(self, operation: str, path: str) -> None:
        """Raises what was ordered for this call."""
        for order in self._orders:
            if order.operation == operation and (order.path is None or order.path == path):
                order.count -= 1
                if order.count == 0:
                    self._orders.remove(order)
                raise trouble(order.code, path)
