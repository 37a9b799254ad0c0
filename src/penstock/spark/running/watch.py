"""Polls the end offsets of topics every second: those that a query reports are as old as its last batch."""

import logging
import threading
from collections.abc import Callable, Iterable

from penstock.client.blocking import SyncClient
from penstock.client.errors import ClientError, Refused
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import Isolation, Moment, list_offsets
from penstock.model.errors import ErrorCode
from penstock.spark.offsets import Stored, to_stored
from penstock.spark.project.connecting import within

PAUSE_S = 1.0
LIMIT_S = 2.0
"""How long a broker may take to answer until it counts as away."""
LAST_LIMIT_S = 10.0
"""The same for the last poll of a run: it decides whether the run ends well."""

log = logging.getLogger("penstock.spark")


def latest_of(client: SyncClient, topic: str) -> Stored:
    """The end offsets of a topic at isolation level read_committed."""
    return client.run(_latest_of(client, topic))


async def _latest_of(client: SyncClient, topic: str) -> Stored:
    described = await client.admin.describe_topic(topic)
    moments = {TopicPartition(topic, each.index): Moment.LATEST for each in described.partitions}
    found = await list_offsets(client.admin.cluster, moments, Isolation.READ_COMMITTED)
    return to_stored({each: at.offset for each, at in found.items()})


class Watch:
    """A thread that polls end offsets and reports them, or why they are not known.

    `missed` is called with the reason and whether that is a broker that does not answer.
    """

    def __init__(
        self,
        connect: Callable[[], SyncClient],
        topics: Iterable[str],
        told: Callable[[str, Stored], None],
        missed: Callable[[str, str, bool], None],
    ) -> None:
        self._client = connect()
        self._topics = sorted(set(topics))
        self._told = told
        self._missed = missed
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops the thread soon."""
        self._over.set()
        self._thread.join(2 * LIMIT_S)
        self._client.close()

    def poll(self, limit_s: float = LIMIT_S) -> None:
        """Polls all topics once. A broker that does not answer for one topic is not asked for the next."""
        for number, topic in enumerate(self._topics):
            try:
                self._told(topic, self._client.run(within(limit_s, _latest_of(self._client, topic))))
            except ClientError as error:
                is_away = error.is_retriable and not _is_no_topic(error)
                for each in self._topics[number:] if is_away else [topic]:
                    self._missed(each, str(error), is_away)
                if is_away:
                    return

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.poll()
            except Exception:
                if not self._over.is_set():
                    log.warning("end offsets are not known", exc_info=True)
            self._over.wait(PAUSE_S)


def _is_no_topic(error: ClientError) -> bool:
    return isinstance(error, Refused) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
