"""Metrics of logs and their disk."""

from collections.abc import Callable, Iterator
from contextlib import suppress

from penstock.log.directory import DataDirectory
from penstock.metadata.names import METADATA_TOPIC
from penstock.server.loop.timing import Timing
from penstock.server.metrics.collector import PIECE, Collector
from penstock.server.metrics.page import Kind, Metric, Page, labels

SIZE = Metric(
    "kafka_log_log_size",
    Kind.GAUGE,
    "Bytes of a partition's log here, whoever leads it.",
    ("topic", "partition"),
)
ALL_BYTES = Metric("penstock_log_bytes", Kind.GAUGE, "Bytes of all logs here, the metadata log among them.")
FREE = Metric(
    "penstock_disk_free_bytes",
    Kind.GAUGE,
    "Room that is left on the disk of the data directory.",
    ("directory",),
    "When none is left, producers are refused: docs/operating/disk-full.md.",
)
OFFLINE = Metric(
    "kafka_log_logmanager_offlinelogdirectorycount",
    Kind.GAUGE,
    "1 if the data directory is offline: a write or sync failed.",
    advice="See to the disk, then restart the node: docs/operating/disk-full.md#a-disk-fails.",
)
COMMIT = Metric(
    "penstock_commit_seconds",
    Kind.HISTOGRAM,
    "How long a round of group commit took: everything that was written before it is on stable storage then.",
    ("le",),
    "Slow rounds are a slow disk; acks wait for them.",
)


class LogCollector(Collector):
    """See the module."""

    metrics = (SIZE, ALL_BYTES, FREE, OFFLINE, COMMIT)

    def __init__(self, directory: DataDirectory, path: str, commits: Timing, most: Callable[[], int]) -> None:
        """`path` is the data directory as the operator gave it; `most` logs have series of their own."""
        self._directory = directory
        self._labelled = labels(directory=path)
        self._commits = commits
        self._most = most

    def collect(self, page: Page) -> Iterator[None]:
        """Adds series for the first logs by name, and the total of all."""
        directory = self._directory
        page.family(OFFLINE).add(int(directory.offline_reason is not None))
        with suppress(OSError):  # unknown then, and the directory will soon be offline
            page.family(FREE).add(directory.disk.free_bytes(), self._labelled)
        page.family(COMMIT).add_timing(self._commits)
        yield
        logs = list(directory.logs.values())
        most, told, all_bytes = self._most(), 0, 0
        if len(logs) > most:  # else the order does not matter
            logs.sort(key=lambda log: (log.identity.topic, log.identity.partition))
        add = page.family(SIZE).add
        for number, log in enumerate(logs):
            size_bytes = log.size_bytes
            all_bytes += size_bytes
            if told < most and log.identity.topic != METADATA_TOPIC:
                add(size_bytes, labels(topic=log.identity.topic, partition=log.identity.partition))
                told += 1
            if number % PIECE == PIECE - 1:
                yield
        page.family(ALL_BYTES).add(all_bytes)
