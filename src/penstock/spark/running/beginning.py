"""The start offsets of a query without a completed batch, decided once.

Spark requests them again until the first batch is done, and "the end of the topic" has moved by then: the records in
between would be lost. So the offsets are stored beside the checkpoint, and returned again.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.client.blocking import SyncClient
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import NO_OFFSET, Isolation, Moment, list_offsets
from penstock.spark.lake.commit import CommitRefused, LakeTable
from penstock.spark.offsets import EARLIEST, Stored, from_stored, to_stored
from penstock.spark.project.plan import Lake
from penstock.spark.running.checkpoint import Checkpoint

FILE = "penstock-start.json"


@dataclass(frozen=True, slots=True)
class Beginning:
    """The start offsets; -2 is the earliest offset."""

    offsets: Stored
    behind: Stored | None
    """The end offsets of another query's table that is continued, if any."""


def beginning_of(lake: Lake, checkpoint: Checkpoint, table: LakeTable, client: SyncClient) -> Beginning:
    """The stored start offsets, or new ones. Raises CommitRefused if checkpoint and table do not belong together."""
    check_owner(checkpoint, table)
    known = known_beginning(checkpoint)
    if known is None:
        known = _decided(lake, checkpoint, table, client)
        _save(checkpoint.path / FILE, known)
    partitions = _partitions(lake.source.topic, client)
    added = dict.fromkeys(partitions, EARLIEST)
    return Beginning(to_stored({**added, **from_stored(known.offsets)}), known.behind)


def known_beginning(checkpoint: Checkpoint) -> Beginning | None:
    """The stored start offsets, if any."""
    return _load(checkpoint.path / FILE)


def check_owner(checkpoint: Checkpoint, table: LakeTable) -> None:
    """Raises CommitRefused if another query writes the table. A commit would find out only after the work."""
    owner, query_id = table.owner(), checkpoint.query_id
    if owner is None or owner == query_id or table.may_adopt:
        return
    raise CommitRefused(
        f"{table.uri} is written by another checkpoint of {table.pipeline} (query {owner}) than {checkpoint.path}"
        f"{', which is new' if query_id is None else ''}. Beginning anew would double its rows. Use the old "
        "checkpoint, or run with --adopt to go on where the table ends."
    )


def _decided(lake: Lake, checkpoint: Checkpoint, table: LakeTable, client: SyncClient) -> Beginning:
    if table.owner() not in (None, checkpoint.query_id):
        behind = table.ends()
        if behind is None:
            raise CommitRefused(
                f"{table.uri} does not say any more how far {table.pipeline} was. Write to another table, or bring "
                "back the old checkpoint."
            )
        return Beginning({topic: dict(numbers) for topic, numbers in behind.items()}, to_stored(from_stored(behind)))
    partitions = _partitions(lake.source.topic, client)
    return Beginning(to_stored(_resolved(lake.source.start, partitions, client)), None)


def _resolved(start: str, partitions: list[TopicPartition], client: SyncClient) -> Mapping[TopicPartition, int]:
    if start == "earliest":
        return dict.fromkeys(partitions, EARLIEST)
    latest = _listed(client, partitions, Moment.LATEST)
    if start == "latest":
        return latest
    since = _listed(client, partitions, int(start))
    return {each: latest[each] if offset == NO_OFFSET else offset for each, offset in since.items()}


def _listed(client: SyncClient, partitions: list[TopicPartition], moment: int) -> dict[TopicPartition, int]:
    asked = list_offsets(client.admin.cluster, dict.fromkeys(partitions, moment), Isolation.READ_COMMITTED)
    return {each: found.offset for each, found in client.run(asked).items()}


def _partitions(topic: str, client: SyncClient) -> list[TopicPartition]:
    described = client.run(client.admin.describe_topic(topic))
    return [TopicPartition(topic, each.index) for each in described.partitions]


def _load(path: Path) -> Beginning | None:
    try:
        found = json.loads(path.read_text())
        return Beginning(found["offsets"], found["behind"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise CommitRefused(f"{path} is not what was written there: restore it, or move the checkpoint away.") from None


def _save(path: Path, beginning: Beginning) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with fresh.open("w") as file:
        json.dump({"offsets": beginning.offsets, "behind": beginning.behind}, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
