"""What a collector is: it knows the metrics of one room, and reads their values where they already are.

It counts nothing itself and holds nobody up: after every piece of work it yields, and others get their turn. So it
takes a list of what it walks through before it begins, and what is gone meanwhile may be missing.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from penstock.server.metrics.page import Metric, Page

PIECE: Final = 50
"""Partitions or topics that are looked at without a pause."""


class Collector(ABC):
    """See the module."""

    metrics: ClassVar[Sequence[Metric]]
    """All that it may put on a page."""

    async def prepare(self) -> None:  # noqa: B027 - most have nothing to do
        """Asks others for what is not here, before the page is filled."""

    @abstractmethod
    def collect(self, page: Page) -> Iterator[None]:
        """Fills the page, and yields wherever others may run."""
