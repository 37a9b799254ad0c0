"""Checkpoints as Spark writes them."""

import json
from pathlib import Path

from penstock.spark.running.checkpoint import Checkpoint


def write_checkpoint(path: Path, query_id: str, planned: int, done: int, topic: str = "orders") -> Checkpoint:
    """Writes a checkpoint; batch 0 ends at offset 10, batch 1 at 20, and so on."""
    for kind in ("offsets", "commits"):
        (path / kind).mkdir(parents=True, exist_ok=True)
    (path / "metadata").write_text(json.dumps({"id": query_id}))
    for batch in range(planned + 1):
        ends = json.dumps({topic: {"0": (batch + 1) * 10}})
        (path / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{ends}')
        (path / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    for batch in range(done + 1):
        (path / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return Checkpoint(path)
