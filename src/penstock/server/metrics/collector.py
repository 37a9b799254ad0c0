"""Interface of collectors: each declares the metrics of one area, and reads their values from existing state.

A collector counts nothing itself, and yields after every piece of work so that other tasks can run. It therefore copies
collections before it iterates over them; items that are removed meanwhile may be missing.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from penstock.server.metrics.page import Metric, Page

PIECE: Final = 50
"""Partitions or topics that are read without a pause."""


class Collector(ABC):
    """See the module."""

    metrics: ClassVar[Sequence[Metric]]
    """All metrics that it may put on a page."""

    async def prepare(self) -> None:  # noqa: B027 - most have nothing to do
        """Queries other nodes for values, before the page is filled."""

    @abstractmethod
    def collect(self, page: Page) -> Iterator[None]:
        """Fills the page, and yields wherever other tasks may run."""
