"""Small tables for tests: their schema, files of a few rows, and their content."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from penstock.spark.lake.commit import Batch, LakeTable
from penstock.spark.lake.table import DataFile

SCHEMA = pa.schema([("offset", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC")), ("day", pa.date32())])
DAY = "2026-01-31"


def lake_table(path: Path, pipeline: str = "orders_lake", *, may_adopt: bool = False) -> LakeTable:
    return LakeTable(str(path), pipeline, SCHEMA, is_by_day=True, may_adopt=may_adopt)


def data_file(table: Path, name: str, offsets: Iterable[int], day: str = DAY, written_ms: int = 0) -> DataFile:
    """Writes a file into the table's directory without committing it."""
    rows = list(offsets)
    moment = datetime.fromisoformat(day).replace(tzinfo=UTC)
    path = f"day={day}/{name}.parquet"
    (table / path).parent.mkdir(parents=True, exist_ok=True)
    columns = [pa.array(rows, pa.int64()), pa.array([moment] * len(rows), pa.timestamp("us", tz="UTC"))]
    pq.write_table(pa.table(columns, names=["offset", "timestamp"]), table / path)
    stats = {"numRecords": len(rows), "minValues": {"offset": min(rows)}, "maxValues": {"offset": max(rows)}}
    return DataFile(path, (table / path).stat().st_size, len(rows), day, json.dumps(stats), written_ms)


def batch(table: Path, number: int, starts: dict[str, dict[str, int]] | None = None, name: str = "part") -> Batch:
    """Builds a batch; batch 0 has offsets 0 to 9, batch 1 has 10 to 19, and so on."""
    first = number * 10
    file = data_file(table, f"{name}-{number}", range(first, first + 10))
    return Batch(number, starts, {"orders": {"0": first + 10}}, [file], file.rows, bad=0)


def offsets_in(path: Path) -> list[int]:
    found = DeltaTable(path).to_pyarrow_table(columns=["offset"])["offset"].to_pylist()
    return sorted(found)
