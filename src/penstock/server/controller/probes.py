"""Probes a broker as soon as its connection has ended, so that its partitions need not wait for its session to end.

Only a refused connection counts: a timeout proves nothing before the session ends, and a broker that sends a heartbeat
meanwhile is not fenced. A process that ends closes its sockets one after the other, so the probe is repeated.
"""

import asyncio
import logging
from typing import Final

from penstock.metadata.reports import BROKER_GONE
from penstock.model.ports import Network
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.loop.reporting import Reporter

logger = logging.getLogger("penstock.controller")

PROBE_S: Final = 1.0
PAUSES_S: Final = (0.0, 0.02, 0.1, 0.5)
"""Pause before each attempt."""


class Probes:
    """The probes of this node's active controller."""

    def __init__(self, controller: ControllerRunner, network: Network) -> None:
        self._controller = controller
        self._network = network
        self._under_way: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._is_stopping = False
        self._reporter = Reporter(logger)
        controller.activated.connect(self.begin_all)

    def begin(self, broker_id: int, broker_epoch: int) -> None:
        """Starts a probe, because the heartbeat connection of this registration has ended."""
        key = (broker_id, broker_epoch)
        if self._is_of_interest(broker_id, broker_epoch) and not self._is_stopping and key not in self._under_way:
            self._under_way[key] = asyncio.get_running_loop().create_task(self._look(broker_id, broker_epoch))

    def begin_all(self) -> None:
        """Probes all brokers: a new controller has no connections, and brokers may have failed with the last one."""
        for broker_id, broker in sorted(self._controller.image.brokers.items()):
            if broker_id != self._controller.node_id:
                self.begin(broker_id, broker.epoch)

    async def stop(self) -> None:
        """Cancels all probes."""
        self._is_stopping = True
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_of_interest(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self._controller.image.brokers.get(broker_id)
        is_there = broker is not None and broker.epoch == broker_epoch and not broker.is_fenced
        return is_there and self._controller.is_active

    async def _look(self, broker_id: int, broker_epoch: int) -> None:
        try:
            for pause_s in PAUSES_S:
                await asyncio.sleep(pause_s)
                if not self._is_of_interest(broker_id, broker_epoch):
                    return
                if await self._is_refused(broker_id):
                    self._reporter.tell(BROKER_GONE(broker=broker_id, epoch=broker_epoch))
                    self._controller.lose(broker_id, broker_epoch)
                    return
        finally:
            self._under_way.pop((broker_id, broker_epoch), None)

    async def _is_refused(self, broker_id: int) -> bool:
        """Whether the broker's machine refuses the connection."""
        try:
            endpoint = self._controller.image.brokers[broker_id].listeners[0]  # the one for brokers (`endpoints`)
            async with asyncio.timeout(PROBE_S):
                (await self._network.connect(endpoint.host, endpoint.port)).close()
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError, IndexError):
            pass  # inconclusive
        return False
