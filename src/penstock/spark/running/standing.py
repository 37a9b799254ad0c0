"""The status of pipelines, read from their checkpoints, tables and topics. No pipeline need run for it."""

import time
from dataclasses import dataclass

from penstock.client.blocking import SyncClient
from penstock.client.errors import ClientError
from penstock.spark.lake.table import noted, open_table
from penstock.spark.project.plan import Lake, Project
from penstock.spark.running.checkpoint import Checkpoint
from penstock.spark.running.gauge import between
from penstock.spark.running.watch import latest_of


@dataclass(frozen=True, slots=True)
class Standing:
    """The status of one pipeline; None if unknown."""

    pipeline: str
    batch: int | None
    lag: int | None
    rows: int | None
    """Rows in the table."""
    files: int | None
    dlq: int | None
    """Offsets in the topic for bad records."""
    written_s: int | None
    """How long ago the last batch was committed."""


def standing_of(project: Project, lake: Lake, client: SyncClient | None) -> Standing:
    """The status as far as it can be determined now."""
    checkpoint = Checkpoint(project.checkpoint(lake.name))
    table = open_table(lake.target.uri)
    rows = files = written_s = None
    if table is not None:
        import pyarrow as pa

        actions = pa.table(table.get_add_actions(flatten=True))
        files, rows = len(actions), sum(actions["num_records"].to_pylist())
        written_ms = next((at_ms for at_ms, note in noted(table) if note.pipeline == lake.name), None)
        written_s = None if written_ms is None else int(time.time() - written_ms / 1000)
    return Standing(
        lake.name,
        checkpoint.last_done,
        None if client is None else _lag(lake, checkpoint, client),
        rows,
        files,
        None if client is None or lake.on_bad_record.topic is None else _size(lake.on_bad_record.topic, client),
        written_s,
    )


def _lag(lake: Lake, checkpoint: Checkpoint, client: SyncClient) -> int | None:
    try:
        return between(checkpoint.position() or {}, latest_of(client, lake.source.topic))
    except ClientError:
        return None


def _size(topic: str, client: SyncClient) -> int | None:
    try:
        return between({}, latest_of(client, topic))
    except ClientError:
        return None
