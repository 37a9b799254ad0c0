"""Makes the node follow the image: topics of the cluster become logs here, and cease to be.

Work is by topic name and idempotent: whatever is there is brought to what the image says, be it after a change, after a
crash in the middle, or at a start. Settings change at once; what needs the disk is done by `run`, and what fails there
is tried again; `settled` waits for it. Who leads is not decided here: `replicas` is told which logs there are. A log
that the cluster never heard of is left alone: better a stray log than a lost one.
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
from penstock.server.controller_runner import ControllerRunner
from penstock.server.replica_runner import ReplicaRunner
from penstock.server.topic_settings import Wardrobe

logger = logging.getLogger("penstock.adoption")

TOPICS_AT_ONCE: Final = 16
LOGS_AT_ONCE: Final = 16
RETRY_S: Final = 1.0


class Adoption:
    """What a node has of the cluster. `start` it before serving, then `run` it."""

    def __init__(
        self,
        controller: ControllerRunner,
        directory: DataDirectory,
        replicas: ReplicaRunner,
        wardrobe: Wardrobe,
        lock: asyncio.Lock,
    ) -> None:
        """`lock` is upkeep's: nobody works on a log's segments while the log is removed."""
        self._controller = controller
        self._directory = directory
        self._replicas = replicas
        self._wardrobe = wardrobe
        self._lock = lock
        self._logs: dict[str, dict[int, Log]] = {}
        self._due: dict[str, None] = {}
        self._unsettled: dict[str, asyncio.Future[None]] = {}
        self._troubles: dict[str, str] = {}
        self._wake = asyncio.Event()

    async def start(self) -> None:
        """Brings the directory to what the loaded image says, and follows the controller from now on."""
        for log in self._directory.logs.values():
            topic = log.identity.topic
            if topic != METADATA_TOPIC and not self._is_stray(log):
                self._logs.setdefault(topic, {})[log.identity.partition] = log
        self._controller.subscribe(self._on_image)
        for name in sorted({**self._logs, **dict.fromkeys(self._controller.image.topics)}):
            self._mark(name)
        await self._work_off()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._work_off()

    @property
    def is_settled(self) -> bool:
        """Whether everything is here, or gone, as the image says."""
        return not self._unsettled

    async def settled(self, names: Iterable[str]) -> None:
        """Returns when these topics are here, or gone, as the image said when this was called."""
        for future in [self._unsettled[name] for name in names if name in self._unsettled]:
            await asyncio.shield(future)

    async def replace(self, log: Log, may_go: Callable[[Log], bool]) -> None:
        """Sets a damaged log aside if it may go still, and makes a new one in its place, which is fetched."""
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

    # --- following ------------------------------------------------------------------------------------------------

    def _on_image(self, changes: Changes, _image: Image) -> None:
        for topic in (*changes.topics_deleted, *changes.topics_created):
            self._mark(topic.name)
        for change in changes.topics_changed:
            self._mark(change.new.name)
        if changes.has_new_broker_settings:
            self._wardrobe.forget()
        for name in self._logs if changes.has_new_broker_settings else changes.topics_with_new_settings:
            for log in self._logs.get(name, {}).values():
                self._replicas.dress(log)

    def _mark(self, name: str) -> None:
        if name not in self._unsettled:
            self._unsettled[name] = asyncio.get_running_loop().create_future()
        self._due[name] = None
        self._wake.set()

    # --- working --------------------------------------------------------------------------------------------------

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
        if name not in self._due:  # else it has changed meanwhile
            self._unsettled.pop(name).set_result(None)

    async def _bring(self, name: str) -> None:
        """Brings one topic to what the image says."""
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
        if self._directory.logs.get(f"{name}-{index}") is log:  # else an earlier try came this far
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
        settings = self._wardrobe.dress_of(name).log
        log = await self._directory.create(name, topic_id.hex(), index, settings)
        self._logs.setdefault(name, {})[index] = log
        return log

    def _is_stray(self, log: Log) -> bool:
        """Whether the metadata log that was loaded knows nothing of it, neither that it is nor that it was deleted."""
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
    """Waits for all of it, also when some of it fails."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if outcome is not None:
            raise outcome
