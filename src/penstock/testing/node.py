"""A real node inside the test process, on a free port, with temporary data.

The node runs in a thread of its own, so that the code under test may block, fork clients or run its own event loop.
"""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.log.settings import Durability
from penstock.metadata.settings.layers import BrokerSettings
from penstock.server.host_ports import host_ports
from penstock.server.node import Node
from penstock.server.settings import ListenerSettings, NodeSettings

T = TypeVar("T")

START_S = 10.0
STOP_S = 20.0
# Tests lose nothing by a power failure, so no time is spent on syncs.
FORGETFUL = {"log.durability": Durability.REPLICATED.value}


class NodeThread:
    """A node from `start` to `stop`."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self._settings = FORGETFUL | (settings or {})
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock", daemon=True)
        self.bootstrap = ""

    def start(self) -> None:
        """Returns when clients can connect."""
        self._thread.start()
        self._data = tempfile.mkdtemp(prefix="penstock-test-")
        self._run(self._start(), START_S)

    async def _start(self) -> None:
        self._ports = host_ports(self._data)
        settings = NodeSettings(
            cluster_id="test",
            node_id=1,
            listeners=(ListenerSettings(port=0),),
            stop_ms=1_000,
            broker=BrokerSettings(self._settings),
            data_path=self._data,
        )
        self._node = Node(self._ports, settings)
        await self._node.start()
        self.bootstrap = self._node.address

    def stop(self) -> None:
        """Stops the node and deletes its data."""
        self._run(self._node.stop(), STOP_S)
        self._ports.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_S)
        self._loop.close()
        shutil.rmtree(self._data, ignore_errors=True)

    def _run(self, work: Coroutine[Any, Any, T], limit_s: float) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(limit_s)
