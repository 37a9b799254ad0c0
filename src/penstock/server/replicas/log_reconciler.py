"""Keeps the logs of this node in line with the image: creates logs of new partitions, removes those of deleted ones.

Work is by topic name and idempotent: the logs are brought to the state of the image, after a change, a crash or a
start. Settings apply at once. Disk work is done by `run`, which retries failures; `TopicArrivals` waits for it. Leaders
are not decided here: `replicas` only receives the logs. A log is left alone if the metadata contains neither its
partition nor its deletion: a stray log is better than a lost one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final

from penstock.log.directory import DataDirectory
from penstock.log.log import Log
from penstock.metadata.changes import Changes
from penstock.metadata.image import Image
from penstock.metadata.names import METADATA_TOPIC
from penstock.model.errors import ProtocolError, StorageError
from penstock.server.controller.controller_runner import ControllerRunner
from penstock.server.partitions.topic_arrivals import TopicArrivals
from penstock.server.replicas.replica_runner import ReplicaRunner
from penstock.server.replicas.topic_configs import TopicConfigs

logger = logging.getLogger("penstock.logs")

TOPICS_AT_ONCE: Final = 16
LOGS_AT_ONCE: Final = 16
RETRY_S: Final = 1.0


class LogReconciler:
    """See the module. Call `start` before the node serves requests, then `run`."""

    def __init__(
        self,
        controller: ControllerRunner,
        directory: DataDirectory,
        replicas: ReplicaRunner,
        topic_configs: TopicConfigs,
        arrivals: TopicArrivals,
        lock: asyncio.Lock,
    ) -> None:
        """`lock` is the storage lock: a log is not removed while other work on its segments is in progress."""
        self._controller = controller
        self._directory = directory
        self._replicas = replicas
        self._topic_configs = topic_configs
        self._arrivals = arrivals
        self._lock = lock
        self._logs: dict[str, dict[int, Log]] = {}
        self._due: dict[str, None] = {}
        self._troubles: dict[str, str] = {}
        self._wake = asyncio.Event()

    async def start(self) -> None:
        """Brings the directory in line with the loaded image, and follows the controller from then on."""
        for log in self._directory.logs.values():
            topic = log.identity.topic
            if topic != METADATA_TOPIC and not self._is_stray(log):
                self._logs.setdefault(topic, {})[log.identity.partition] = log
        self._controller.subscribe(self._on_image)
        for name in sorted({**self._logs, **dict.fromkeys(self._controller.image.topics)}):
            self._mark(name)
        await self._work_off()

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._work_off()

    async def replace(self, log: Log, may_go: Callable[[Log], bool]) -> None:
        """Sets a damaged log aside if it still may go, and schedules a new log in its place, which is fetched."""
        topic_id, name, index = bytes.fromhex(log.identity.topic_id), log.identity.topic, log.identity.partition
        async with self._lock:
            if self._logs.get(name, {}).get(index) is not log or not may_go(log):
                return
            self._replicas.closed((topic_id, index), log)
            await self._directory.set_aside(log)
            del self._logs[name][index]
        logger.warning(
            "%s is offline (%s): it was set aside as logs/%d.damaged, and is fetched anew from its leader. Look after "
            "the disk: damage seldom comes alone.",
            log.path,
            log.offline_reason,
            log.identity.number,
        )
        self._mark(name)

    # --- changes of the image -------------------------------------------------------------------------------------

    def _on_image(self, changes: Changes, _image: Image) -> None:
        for topic in (*changes.topics_deleted, *changes.topics_created):
            self._mark(topic.name)
        for change in changes.topics_changed:
            self._mark(change.new.name)
        if changes.has_new_broker_settings:
            self._topic_configs.forget()
        for name in self._logs if changes.has_new_broker_settings else changes.topics_with_new_settings:
            for log in self._logs.get(name, {}).values():
                self._replicas.dress(log)

    def _mark(self, name: str) -> None:
        self._arrivals.expect(name)
        self._due[name] = None
        self._wake.set()

    # --- work on disk ---------------------------------------------------------------------------------------------

    async def _work_off(self) -> None:
        while self._due:
            names = list(self._due)[:TOPICS_AT_ONCE]
            for name in names:
                del self._due[name]
            await asyncio.gather(*(self._try(name) for name in names))

    async def _try(self, name: str) -> None:
        try:
            await self._bring(name)
        except (ProtocolError, OSError) as error:
            if self._troubles.get(name) != str(error):
                self._troubles[name] = str(error)
                logger.warning("Topic %s is not ready here, and is tried again every second: %s.", name, error)
            asyncio.get_running_loop().call_later(RETRY_S, self._mark, name)
            return
        self._troubles.pop(name, None)
        if name not in self._due:  # otherwise it has changed meanwhile
            self._arrivals.arrived(name)

    async def _bring(self, name: str) -> None:
        """Brings the logs of one topic in line with the image."""
        topic = self._controller.image.topics.get(name)
        topic_id, wanted = b"", list[int]()
        if topic is not None:
            node_id, topic_id = self._controller.node_id, topic.topic_id
            wanted = [index for index, placed in topic.partitions.items() if node_id in placed.replicas]
        here = self._logs.get(name, {})
        gone = [i for i, log in here.items() if log.identity.topic_id != topic_id.hex() or i not in wanted]
        for indexes in _turns(gone):
            async with self._lock:
                await _all(self._remove(name, index) for index in indexes)
        here = self._logs.get(name, {})
        new = [index for index in wanted if not self._replicas.has_opened((topic_id, index), here.get(index))]
        for indexes in _turns(new):
            await _all(self._add(name, topic_id, index) for index in indexes)

    async def _remove(self, name: str, index: int) -> None:
        log = self._logs[name][index]
        if self._directory.logs.get(f"{name}-{index}") is log:  # otherwise an earlier attempt deleted it
            await self._directory.delete(log)
        del self._logs[name][index]
        if not self._logs[name]:
            del self._logs[name]

    async def _add(self, name: str, topic_id: bytes, index: int) -> None:
        log = self._logs.get(name, {}).get(index)
        if log is None:
            log = await self._create(name, topic_id, index)
        self._replicas.opened((topic_id, index), log)

    async def _create(self, name: str, topic_id: bytes, index: int) -> Log:
        if f"{name}-{index}" in self._directory.logs:
            raise StorageError(f"a log {name}-{index} of another topic is in its place; move it away and restart")
        settings = self._topic_configs.config_of(name).log
        log = await self._directory.create(name, topic_id.hex(), index, settings)
        self._logs.setdefault(name, {})[index] = log
        return log

    def _is_stray(self, log: Log) -> bool:
        """Whether the loaded metadata log contains neither the partition of this log nor its deletion."""
        topic_id = bytes.fromhex(log.identity.topic_id)
        topic = self._controller.image.topic_by_id(topic_id)
        is_known = (
            self._controller.was_deleted(topic_id) if topic is None else log.identity.partition in topic.partitions
        )
        if not is_known:
            logger.error(
                "%s belongs to a topic that the cluster never heard of (id %s); it is left alone and not served: move "
                "it away, or restore the metadata log that knows it.",
                log.path,
                topic_id.hex(),
            )
        return not is_known


def _turns(indexes: Sequence[int]) -> Iterator[Sequence[int]]:
    return (indexes[first : first + LOGS_AT_ONCE] for first in range(0, len(indexes), LOGS_AT_ONCE))


async def _all(work: Iterable[Awaitable[None]]) -> None:
    """Waits for all awaitables, even if some fail; then raises the first error."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if outcome is not None:
            raise outcome
