"""Records that were to be read and are not there any more: aged out, deleted, or cut off.

`on_gap` says what happens: the query fails, or goes on behind the gap with a warning, or with a message in a topic of
its own. Such a message may come twice, as a task may; its key is the same then.
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
    """Reading on would leave records out."""


class Gap(NamedTuple):
    """Offsets of a partition that cannot be read; where they end may be unknown."""

    partition: TopicPartition
    first: int
    end: int | None
    reason: str

    def __str__(self) -> str:
        end = "the end" if self.end is None else str(self.end)
        return f"{self.partition}: the records from offset {self.first} to {end} are lost: {self.reason}"


def meet(gap: Gap, options: SourceOptions, client: SyncClient) -> None:
    """Does as `on_gap` says. DataLost if that is to fail."""
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
            client.publish(options.dlq_topic, key, json.dumps(_described(gap)))
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
