"""Grace period in which a just-lost broker stays in Metadata responses, and Metadata waits for new leaders.

A client requests Metadata as soon as its connection to a leader breaks, possibly before the controller has detected the
failure. If it receives the old leader again, it waits until its next refresh (librdkafka: up to a second). So for a
short time after this broker lost its fetch connection to a broker, Metadata waits for the controller's reaction.

A fenced broker stays listed in Metadata for a short time, though it leads nothing: a client may drop its state for an
unlisted broker before it has moved the partitions (librdkafka since 2.10, which then also waits for its next refresh).
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Protocol

from penstock.metadata.image import Broker, Image
from penstock.model.errors import ProtocolError
from penstock.model.ports import Clock
from penstock.server.controller.controller_runner import ControllerRunner

DOUBT_MS: Final = 1_000
"""How long Metadata waits at most after a lost connection: another controller may have to be elected first. A failure
that takes longer to detect waits for the end of the broker's session."""
LISTED_MS: Final = 2_000
"""How long a fenced broker stays listed."""


class Reached(Protocol):
    """A connection."""

    @property
    def is_closed(self) -> bool:
        """Whether either side has closed it."""


class BrokerGrace:
    """See the module."""

    __slots__ = ("_brokers", "_clock", "_fenced_ms", "_lost_ms", "_reached")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lost_ms: dict[int, int] = {}
        """When each lost broker was lost; removed when it answers again."""
        self._reached: dict[int, Reached] = {}
        """The connection on which each broker answered last."""
        self._brokers: Mapping[int, Broker] = {}
        self._fenced_ms: dict[int, int] = {}

    # --- fetch connections

    def lost(self, broker_id: int) -> None:
        """Records that a fetch was not answered."""
        self._reached.pop(broker_id, None)
        self._lost_ms.setdefault(broker_id, self._clock.monotonic_ms())

    def answered(self, broker_id: int, connection: Reached) -> None:
        """Records that a fetch was answered."""
        self._reached[broker_id] = connection
        if self._lost_ms:
            self._lost_ms.pop(broker_id, None)

    # --- Metadata responses

    async def settled(self, controller: ControllerRunner) -> None:
        """Returns when the controller has fenced the brokers just lost, or when that takes too long."""
        for broker_id in [each for each, connection in self._reached.items() if connection.is_closed]:
            self.lost(broker_id)  # between two fetches
        if self._lost_ms and self._is_in_doubt(controller.image):
            with suppress(TimeoutError, ProtocolError):
                async with asyncio.timeout(DOUBT_MS / 1000):
                    await controller.until(lambda: not self._is_in_doubt(controller.image))

    def _is_in_doubt(self, image: Image) -> bool:
        since_ms = self._clock.monotonic_ms() - DOUBT_MS
        return any(
            lost_ms > since_ms and broker_id in image.brokers and not image.brokers[broker_id].is_fenced
            for broker_id, lost_ms in self._lost_ms.items()
        )

    def is_listed(self, broker: Broker, image: Image) -> bool:
        """Whether Metadata lists a broker: while it is not fenced, and for LISTED_MS afterwards."""
        if image.brokers is not self._brokers:
            self._look_at(image.brokers)
        if not broker.is_fenced:
            return True
        fenced_ms = self._fenced_ms.get(broker.broker_id)
        return fenced_ms is not None and self._clock.monotonic_ms() - fenced_ms < LISTED_MS

    def _look_at(self, brokers: Mapping[int, Broker]) -> None:
        """Records the brokers that were fenced since the last call."""
        now_ms = self._clock.monotonic_ms()
        for broker_id, before in self._brokers.items():
            if broker_id in brokers and brokers[broker_id].is_fenced and not before.is_fenced:
                self._fenced_ms[broker_id] = now_ms
        self._fenced_ms = {
            broker_id: fenced_ms
            for broker_id, fenced_ms in self._fenced_ms.items()
            if broker_id in brokers and brokers[broker_id].is_fenced
        }
        self._brokers = brokers
