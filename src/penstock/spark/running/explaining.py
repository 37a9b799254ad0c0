"""Describes a pipeline in plain words."""

from penstock.client.blocking import SyncClient
from penstock.spark.lake.table import open_table
from penstock.spark.project.plan import Audit, Bad, Lake, Policy, Project
from penstock.spark.project.quantities import show_bytes, show_ms
from penstock.spark.running.checkpoint import Checkpoint
from penstock.spark.running.gauge import between
from penstock.spark.running.watch import latest_of


def explained(project: Project, lake: Lake, client: SyncClient) -> dict[str, str]:
    """The sentences of the description by subject."""
    checkpoint = Checkpoint(project.checkpoint(lake.name))
    latest = latest_of(client, lake.source.topic)
    position = checkpoint.position()
    waiting = between(position or {}, latest)
    partitions = len(latest.get(lake.source.topic, {}))
    headers = ", with headers" if lake.source.has_headers else ""
    return {
        "reads": f"{lake.source.topic} at {project.cluster.bootstrap}, {partitions} partitions{headers}",
        "begins": _begins(lake, checkpoint),
        "waiting": f"{waiting:,} offsets",
        "lag": "is shown by no group" if lake.source.group is None else f"is shown by group {lake.source.group}",
        "decodes": _decodes(lake),
        "bad records": _policy(lake.on_bad_record),
        "lost records": _policy(lake.on_gap),
        "writes": _writes(lake),
        "each batch": f"up to {show_bytes(lake.batch_bytes_max)}, every {show_ms(lake.trigger_ms)}; in the table once",
        "small files": f"joined when they are {show_ms(lake.target.compact.quiet_ms)} old and their day is over"
        if lake.target.compact.is_on
        else "stay as they are",
        "runs on": f"{project.spark.master} with {project.spark.memory} of memory",
    }


def explained_audit(project: Project, audit: Audit) -> dict[str, str]:
    """The same for an audit."""
    lake = project.lake(audit.of)
    return {
        "compares": f"{lake.target.uri} with {lake.source.topic} at {project.cluster.bootstrap}",
        "counts": "records and rows by partition and hour, with a sum over whole rows; where a sum differs, row by row",
        "leaves out": "offsets that the topic has deleted by now",
        "writes": f"{audit.uri}, and {audit.name}.html beside the checkpoints",
        "runs": f"every {show_ms(audit.trigger_ms)}; with --once it ends with code 1 if anything differs",
    }


def _begins(lake: Lake, checkpoint: Checkpoint) -> str:
    done = checkpoint.last_done
    if done is not None:
        return f"behind batch {done} of {checkpoint.path}"
    return f"at {lake.source.start}: {checkpoint.path} has no batch yet"


def _decodes(lake: Lake) -> str:
    texts = []
    for name, how in (("key", lake.decode.key), ("value", lake.decode.value)):
        if how == "none":
            texts.append(f"the {name} stays bytes")
        elif lake.decode.schema is not None and name == "value":
            texts.append(f"the value is JSON with {lake.decode.schema}")
        else:
            texts.append(f"the {name} is {'text' if how == 'text' else 'JSON, kept as text'}")
    return "; ".join(texts)


def _writes(lake: Lake) -> str:
    table = open_table(lake.target.uri)
    there = "a new table" if table is None else f"version {table.version()}"
    by = "by day" if lake.target.is_by_day else "without partitions"
    return f"{lake.target.uri} ({there}), {by}, files up to {show_bytes(lake.target.file_bytes)}"


def _policy(policy: Policy) -> str:
    match policy.what:
        case Bad.FAIL:
            return "stop the pipeline"
        case Bad.SKIP:
            return "are skipped"
        case Bad.DLQ:
            return f"go to {policy.topic}"
