"""Where topics end, asked every second beside the queries: what a query itself says is as old as its last batch."""

import threading
from collections.abc import Callable, Iterable

from penstock.client.blocking import SyncClient
from penstock.client.errors import ClientError
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import Isolation, Moment, list_offsets
from penstock.spark.offsets import Stored, to_stored

PAUSE_S = 1.0


def latest_of(client: SyncClient, topic: str) -> Stored:
    """Where a topic ends for whoever reads what is committed."""
    described = client.run(client.admin.describe_topic(topic))
    moments = {TopicPartition(topic, each.index): Moment.LATEST for each in described.partitions}
    found = client.run(list_offsets(client.admin.cluster, moments, Isolation.READ_COMMITTED))
    return to_stored({each: at.offset for each, at in found.items()})


class Watch:
    """A thread that asks, and tells what it was told. A broker that is away is asked again."""

    def __init__(
        self, connect: Callable[[], SyncClient], topics: Iterable[str], told: Callable[[str, Stored], None]
    ) -> None:
        self._connect = connect
        self._topics = sorted(set(topics))
        self._told = told
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends it soon."""
        self._over.set()

    def _run(self) -> None:
        with self._connect() as client:
            while not self._over.is_set():
                for topic in self._topics:
                    try:
                        self._told(topic, latest_of(client, topic))
                    except ClientError:
                        continue
                self._over.wait(PAUSE_S)
