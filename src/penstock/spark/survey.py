"""Queries the cluster for the driver: the partitions, their start and end offsets, and their sizes.

Sizes come from DescribeLogDirs: the bytes of a partition on its leader, divided by its number of offsets. Where that is
not allowed, the first batches of the largest ranges are measured instead; without any data, a record counts as 512
bytes. Sizes are means over the whole log, and only decide where tasks are cut.

A topic is identified by its id. Ids are kept while the query runs, and in a file if one is configured, because a
checkpoint in the connector's format cannot hold them.
"""

import asyncio
import base64
import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.client.admin.brokers import log_dirs
from penstock.client.blocking import SyncClient
from penstock.client.cluster import Cluster
from penstock.client.consumer.consumer import Consumer
from penstock.client.consumer.fetcher import FetchSettings
from penstock.client.errors import ClientError, Refused, Unsupported
from penstock.client.metadata import Topic, TopicPartition
from penstock.client.offsets import NO_OFFSET, Isolation, Moment, list_offsets
from penstock.spark.link import connect
from penstock.spark.offsets import EARLIEST, LATEST, Offsets, shown
from penstock.spark.options import (
    Assigned,
    AtOffsets,
    Bound,
    Matching,
    Named,
    OptionError,
    Since,
    SinceEach,
    SourceOptions,
)
from penstock.wire.types import ZERO_UUID

RECORD_BYTES_GUESS = 512
SAMPLES_MAX = 64
SAMPLE_BYTES = 64 * 1024
SAMPLE_WAIT_MS = 5_000
MEANS_AGE_S_MAX = 60.0
METADATA_AGE_S_MAX = 1.0
"""Spark polls a hundred times a second while there is no new data; new partitions may wait for a second."""


class TopicRecreated(Exception):
    """The topic was deleted and recreated under the same name."""


class Survey:
    """See the module. Connects on first use; the caller closes it."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client: SyncClient | None = None
        self._partitions: list[TopicPartition] = []
        self._partitions_asked_s = 0.0
        self._means: dict[TopicPartition, float] = {}
        self._means_asked_s = 0.0
        self._ids_file = None if options.topic_ids_file is None else Path(options.topic_ids_file)
        self.topic_ids: dict[str, bytes] = {} if self._ids_file is None else _load_ids(self._ids_file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    @property
    def client(self) -> SyncClient:
        """The client, connected on first use."""
        if self._client is None:
            self._client = connect(self._options)
        return self._client

    @property
    def _cluster(self) -> Cluster:
        return self.client.admin.cluster

    # --- partitions

    def partitions(self) -> list[TopicPartition]:
        """All partitions to read, in order. Raises TopicRecreated if a topic was recreated."""
        now_s = time.monotonic()
        if not self._partitions or now_s - self._partitions_asked_s >= METADATA_AGE_S_MAX:
            topics = self.client.run(self._topics())
            self._check_ids(topics)
            self._partitions = self._chosen(topics)
            self._partitions_asked_s = now_s
        return self._partitions

    async def _topics(self) -> list[Topic]:
        match self._options.subscription:
            case Named(names):
                wanted = list(names)
            case Assigned(partitions):
                wanted = list(dict.fromkeys(each.topic for each in partitions))
            case Matching(pattern):
                await self._cluster.refresh(None)
                topics = self._cluster.view.topics
                return [topics[name] for name in sorted(topics) if re.search(pattern, name) and _is_open(topics[name])]
        for attempt in range(self._options.fetch_attempts):
            if attempt:
                await asyncio.sleep(self._options.fetch_pause_ms / 1000)
            refused = await self._cluster.refresh(wanted)
            if not refused:
                break
        return [await self._cluster.topic(name) for name in sorted(wanted)]

    def _chosen(self, topics: Iterable[Topic]) -> list[TopicPartition]:
        found = [TopicPartition(topic.name, each.index) for topic in topics for each in topic.partitions]
        if not isinstance(self._options.subscription, Assigned):
            return found
        wanted = self._options.subscription.partitions
        if missing := set(wanted) - set(found):
            raise OptionError(f"assign names {shown(missing)}, but there is no such partition.")
        return list(wanted)

    def _check_ids(self, topics: Iterable[Topic]) -> None:
        is_news = False
        for topic in topics:
            known = self.topic_ids.get(topic.name)
            check_id(topic.name, known, topic.topic_id)
            if known is None or known == ZERO_UUID:
                self.topic_ids[topic.name] = topic.topic_id
                is_news = True
        if is_news and self._ids_file is not None:
            _save_ids(self._ids_file, self.topic_ids)

    # --- start and end offsets

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offset of each partition."""
        return self._listed(dict.fromkeys(partitions, Moment.EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end offset of each partition at the isolation level of the options."""
        return self._listed(dict.fromkeys(partitions, Moment.LATEST))

    def latest_behind(self, known: Offsets) -> dict[TopicPartition, int]:
        """The end offsets; requested again if one is below `known`, as a new leader may briefly report a lower one."""
        found: dict[TopicPartition, int] = {}
        for attempt in range(self._options.fetch_attempts):
            if attempt:
                time.sleep(self._options.fetch_pause_ms / 1000)
            found = self.latest(self.partitions())
            if all(known.get(each, 0) <= offset for each, offset in found.items()):
                break
        return found

    def resolved(self, bound: Bound, *, is_start: bool) -> dict[TopicPartition, int]:
        """Resolves a bound to an offset for each partition to read."""
        partitions = self.partitions()
        match bound:
            case "earliest":
                return self.earliest(partitions)
            case "latest":
                return self.latest(partitions)
            case AtOffsets(offsets):
                self._check_named(offsets, is_start=is_start)
                return self._resolved_marks({each: offsets[each] for each in partitions})
            case SinceEach(timestamps_ms):
                self._check_named(timestamps_ms, is_start=is_start)
                return self._since({each: timestamps_ms[each] for each in partitions}, is_start=is_start)
            case Since(timestamp_ms):
                return self._since(dict.fromkeys(partitions, timestamp_ms), is_start=is_start)

    def since(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or after a timestamp, or None."""
        found = self._listed(timestamps_ms)
        return {each: None if offset == NO_OFFSET else offset for each, offset in found.items()}

    def _since(self, timestamps_ms: Mapping[TopicPartition, int], *, is_start: bool) -> dict[TopicPartition, int]:
        found = self._listed(timestamps_ms)
        late = [each for each, offset in found.items() if offset == NO_OFFSET]
        if late and is_start and not self._options.is_late_start_allowed:
            raise OptionError(
                f"No record of {shown(late)} is as late as its starting timestamp: choose an earlier one, or set "
                "startingOffsetsByTimestampStrategy to latest."
            )
        return self._resolved_marks({**found, **dict.fromkeys(late, LATEST)})

    def _resolved_marks(self, offsets: Offsets) -> dict[TopicPartition, int]:
        earliest = self.earliest([each for each, offset in offsets.items() if offset == EARLIEST])
        latest = self.latest([each for each, offset in offsets.items() if offset == LATEST])
        return {**offsets, **earliest, **latest}

    def _check_named(self, named: Mapping[TopicPartition, int], *, is_start: bool) -> None:
        partitions = set(self.partitions())
        if named.keys() != partitions:
            which = "starting" if is_start else "ending"
            parts = []
            if missing := partitions - named.keys():
                parts.append(f"it lacks {shown(missing)}")
            if surplus := named.keys() - partitions:
                parts.append(f"nothing is read of {shown(surplus)}")
            raise OptionError(
                f"The {which} offsets must name every partition that is read, and no other: {'; '.join(parts)}. "
                "Use -1 for the latest offset and -2 for the earliest where you do not care."
            )

    def _listed(self, moments: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not moments:
            return {}
        found = self.client.run(list_offsets(self._cluster, moments, self._options.isolation))
        return {each: at.offset for each, at in found.items()}

    # --- sizes

    def sizes(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """The estimated size of each range in bytes."""
        now_s = time.monotonic()
        if now_s - self._means_asked_s >= MEANS_AGE_S_MAX or not self._means:
            self._means = self.client.run(
                _mean_bytes(self._cluster, self.partitions(), ranges, self._options.isolation)
            )
            self._means_asked_s = now_s
        known = [self._means[each] for each in ranges if each in self._means]
        otherwise = sum(known) / len(known) if known else RECORD_BYTES_GUESS
        return {
            each: int(max(0, end - first) * self._means.get(each, otherwise)) for each, (first, end) in ranges.items()
        }


def check_id(topic: str, known: bytes | None, found: bytes) -> None:
    """Raises TopicRecreated if the id of a topic has changed."""
    if known is not None and found not in (known, ZERO_UUID) and known != ZERO_UUID:
        raise TopicRecreated(
            f"Topic {topic} was deleted and made again (its id was {id_text(known)} and is {id_text(found)}): offsets "
            "of the old one mean nothing in the new one. Begin again with a new checkpoint."
        )


def id_text(topic_id: bytes) -> str:
    """The id as Kafka's tools print it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def _is_open(topic: Topic) -> bool:
    return not topic.is_internal and bool(topic.partitions)


# --- ids in a file


def _load_ids(path: Path) -> dict[str, bytes]:
    try:
        stored = json.loads(path.read_text())
        return {name: base64.urlsafe_b64decode(text + "==") for name, text in stored.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError, TypeError):
        raise OptionError(f"topic_ids_file: {path} is not what was written there: restore it or remove it.") from None


def _save_ids(path: Path, ids: Mapping[str, bytes]) -> None:
    text = json.dumps({name: id_text(topic_id) for name, topic_id in sorted(ids.items())}, indent=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(text + "\n")
    fresh.replace(path)


# --- mean sizes


async def _mean_bytes(
    cluster: Cluster,
    partitions: list[TopicPartition],
    ranges: Mapping[TopicPartition, tuple[int, int]],
    isolation: Isolation,
) -> dict[TopicPartition, float]:
    """Mean bytes per offset, by partition, as far as they can be determined."""
    try:
        means = await _described_means(cluster, partitions)
    except (Refused, Unsupported):
        means = {}
    if means:
        return means
    try:
        return await _weighed_means(cluster, ranges, isolation)
    except ClientError:
        return {}  # the tasks will report the error


async def _described_means(cluster: Cluster, partitions: list[TopicPartition]) -> dict[TopicPartition, float]:
    earliest = await list_offsets(cluster, dict.fromkeys(partitions, Moment.EARLIEST))
    latest = await list_offsets(cluster, dict.fromkeys(partitions, Moment.LATEST))
    leaders = {each: cluster.view.leader(*each) for each in partitions}
    nodes = sorted({node for node in leaders.values() if node is not None})
    found = await log_dirs(cluster, nodes, partitions=partitions)
    means = {}
    for each, leader in leaders.items():
        count = latest[each].offset - earliest[each].offset
        sizes = [] if leader is None else [where.replicas.get(each, 0) for where in found[leader]]
        if any(sizes) and count > 0:
            means[each] = max(sizes) / count
    return means


async def _weighed_means(
    cluster: Cluster, ranges: Mapping[TopicPartition, tuple[int, int]], isolation: Isolation
) -> dict[TopicPartition, float]:
    """Mean bytes per offset in the first batches of the largest ranges."""
    by_count = sorted(ranges, key=lambda each: ranges[each][1] - ranges[each][0], reverse=True)
    chosen = {each: ranges[each] for each in by_count[:SAMPLES_MAX] if ranges[each][0] < ranges[each][1]}
    settings = FetchSettings(
        isolation, partition_bytes_max=SAMPLE_BYTES, ahead_bytes_max=1, bytes_max=SAMPLE_BYTES * SAMPLES_MAX
    )
    consumer = Consumer(cluster, settings, out_of_range="earliest")
    means: dict[TopicPartition, float] = {}
    try:
        consumer.assign_ranges(chosen)
        while chosen.keys() - means.keys():
            fetched = await consumer.fetch_batches(SAMPLE_WAIT_MS)
            if fetched is None:
                break
            if fetched.batches:
                span = fetched.batches[-1].last_offset + 1 - fetched.batches[0].base_offset
                means.setdefault(fetched.partition, fetched.size_bytes / span)
            consumer.pause(fetched.partition)
    finally:
        await consumer.close()
    return means
