"""Gaps: records to be read that are no longer in the log because of retention, deletion or truncation.

`on_gap` decides what happens: the query fails, or continues after the gap with a warning, or also with a message in
`dlq_topic`. A task that runs twice may write the message twice, with the same key.
"""

import json
import logging
import time
from typing import NamedTuple

from penstock.client.blocking import SyncClient
from penstock.client.metadata import TopicPartition
from penstock.spark.options import OnGap, SourceOptions

log = logging.getLogger("penstock.spark")


class DataLost(Exception):
    """Continuing would skip records."""


class Gap(NamedTuple):
    """A range of offsets of a partition that cannot be read; its end may be unknown."""

    partition: TopicPartition
    first: int
    end: int | None
    reason: str

    def __str__(self) -> str:
        end = "the end" if self.end is None else str(self.end)
        return f"{self.partition}: the records from offset {self.first} to {end} are lost: {self.reason}"


def meet(gap: Gap, options: SourceOptions, client: SyncClient) -> None:
    """Handles a gap according to `on_gap`. Raises DataLost if that is `fail`."""
    match options.on_gap:
        case OnGap.FAIL:
            raise DataLost(
                f"{gap}. To read on without them, set on_gap to skip (or to dlq, to have it written down), which is "
                "what failOnDataLoss=false means; or begin again with a new checkpoint."
            )
        case OnGap.SKIP:
            log.warning("%s; skipped, as on_gap says", gap)
        case OnGap.DLQ:
            assert options.dlq_topic is not None
            topic, partition = gap.partition
            key = f"{topic}/{partition}/{gap.first}"
            client.publish(options.dlq_topic, json.dumps(_described(gap)), key)
            log.warning("%s; noted in %s", gap, options.dlq_topic)


def _described(gap: Gap) -> dict[str, object]:
    return {
        "kind": "gap",
        "topic": gap.partition.topic,
        "partition": gap.partition.partition,
        "first": gap.first,
        "end": gap.end,
        "reason": gap.reason,
        "noticed_ms": time.time_ns() // 1_000_000,
    }
