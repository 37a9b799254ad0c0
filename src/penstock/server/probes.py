"""A broker whose connection has ended is looked for at once: its partitions need not wait for its session to end.

Only a machine that says that nobody listens there is believed: silence says nothing before the session is over, and a
broker that is heard of meanwhile is not fenced.
"""

import asyncio
import logging
from typing import Final

from penstock.model.ports import Network
from penstock.server.controller_runner import ControllerRunner

logger = logging.getLogger("penstock.controller")

PROBE_S: Final = 1.0


class Probes:
    """What the active controller of this node looks for."""

    def __init__(self, controller: ControllerRunner, network: Network) -> None:
        self._controller = controller
        self._network = network
        self._under_way: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._is_stopping = False

    def begin(self, broker_id: int, broker_epoch: int) -> None:
        """The connection of that registration's heartbeats has ended."""
        controller, key = self._controller, (broker_id, broker_epoch)
        broker = controller.image.brokers.get(broker_id)
        is_of_interest = broker is not None and broker.epoch == broker_epoch and not broker.is_fenced
        if is_of_interest and controller.is_active and not self._is_stopping and key not in self._under_way:
            self._under_way[key] = asyncio.get_running_loop().create_task(self._look(broker_id, broker_epoch))

    def begin_all(self) -> None:
        """A new controller has no connections to miss: what ended the last one may have ended brokers, too."""
        for broker_id, broker in sorted(self._controller.image.brokers.items()):
            if broker_id != self._controller.node_id:
                self.begin(broker_id, broker.epoch)

    async def stop(self) -> None:
        """Nobody is looked for any more."""
        self._is_stopping = True
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, broker_id: int, broker_epoch: int) -> None:
        try:
            endpoint = self._controller.image.brokers[broker_id].listeners[0]
            async with asyncio.timeout(PROBE_S):
                (await self._network.connect(endpoint.host, endpoint.port)).close()
        except ConnectionRefusedError:
            logger.info("Broker %d is gone.", broker_id)
            self._controller.lose(broker_id, broker_epoch)
        except (OSError, TimeoutError, KeyError, IndexError):
            pass  # nothing was learned
        finally:
            self._under_way.pop((broker_id, broker_epoch), None)
