"""A topic becomes a table, row for row, whichever process is stopped, killed or resumed as a zombie."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from harness.penstock_node import PenstockNode
from harness.spark.shared_classes import with_classes
from penstock.client.blocking import SyncClient
from penstock.spark.lake.compaction import NOTE
from tests.spark.lake.pipelines import DEADLINE_S, KEPT, Pipeline, place

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("spark")]
ROOT = Path(__file__).parents[3]
RECORDS = 9000
SMALL = "20 KB"
"""Makes many batches of the records."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockNode]:
    with PenstockNode(tmp_path_factory.mktemp("lake-node")) as started:
        yield started


@pytest.fixture
def lake(node: PenstockNode, tmp_path: Path) -> Iterator[Pipeline]:
    """A topic with records, and a pipeline that has not run."""
    with SyncClient(node.bootstrap) as client:
        made = Pipeline(tmp_path, node.bootstrap, f"orders-{tmp_path.name[-24:]}", client)
        client.create_topic(made.topic, 3, configs=KEPT)
        made.fill(range(RECORDS))
        yield made


def seen_by_delta_spark(table: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "harness.spark.delta_session", str(table)]
    variables = with_classes(os.environ)
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compactions(lake: Pipeline) -> list[int]:
    return [each["version"] for each in lake.table.history() if each.get("userMetadata") == NOTE]


def test_a_run_follows_its_topic_and_joins_small_files(lake: Pipeline) -> None:
    """It ends cleanly when it is stopped; the next run continues there, and an audit finds nothing."""
    lake.describe(max_batch=SMALL)
    driver = lake.start()
    driver.wait_for(RECORDS - RECORDS // 100)
    lake.fill(range(RECORDS, RECORDS + 100))
    driver.wait_for(RECORDS + 100 - RECORDS // 100 - 1)
    deadline_s = time.monotonic() + DEADLINE_S
    while not (joined := compactions(lake)) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    assert driver.end() == 0, driver.log
    assert joined, "small files were joined"
    shown = lake.client.committed(lake.topic, "orders_lake")
    assert sum(shown.values()) == RECORDS + 100, "a group of its name shows how far it is"
    lake.assert_table_is_topic()
    last = driver.said[-1]
    assert (last["offsets"], last["bad"]) == (last["rows"] + last["bad"], (RECORDS + 100) // 100)

    status = lake.run("status")
    assert status.returncode == 0, status.stderr
    again = lake.run("run", "--once")
    assert again.returncode == 0, again.stderr
    assert "orders_lake: 0 offsets read = 0 rows + 0 bad + 0 without a record" in again.stdout
    told = "orders_audit: 9,100 offsets = 9,009 rows + 91 bad + 0 without a record; the table is the topic"
    assert told in again.stdout

    by_delta_spark = seen_by_delta_spark(lake.directory / "lake")
    assert (by_delta_spark["rows"], by_delta_spark["distinct"]) == (9009, 9009)
    assert by_delta_spark["offsets"] == sum(row["offset"] for row in lake.rows())
    assert by_delta_spark["days"] == ["2026-01-31", "2026-02-01", "2026-02-02"]


def test_an_audit_names_the_row_that_is_missing_the_one_that_is_there_twice_and_the_one_that_was_altered(
    lake: Pipeline,
) -> None:
    lake.describe()
    filled = lake.run("run", "orders_lake", "--once")
    assert filled.returncode == 0, filled.stderr
    deleted = lake.table.delete("partition = 1 AND offset = 70")
    updated = lake.table.update(predicate="partition = 2 AND offset = 2000", updates={"key": "'other'"})
    twice = [row for row in lake.rows() if place(row) == (0, 1234)]
    assert (deleted["num_deleted_rows"], updated["num_updated_rows"], len(twice)) == (1, 1, 1), filled.stdout
    write_deltalake(lake.table, pa.Table.from_pylist(twice, lake.table.to_pyarrow_table().schema), mode="append")

    audit = lake.run("run", "orders_audit", "--once")
    assert audit.returncode == 1, audit.stdout
    assert "orders_audit: the table is not the topic" in audit.stderr
    assert audit.stdout.splitlines()[-3:] == [
        "doubled: partition 0, offset 1234 (there 2 times)",
        "missing: partition 1, offset 70",
        "altered: partition 2, offset 2000",
    ]
    page = (lake.directory / ".penstock" / "checkpoints" / "orders_audit.html").read_text()
    assert page.count("<td class='bad'>") == 6, "three rows, and three partitions"
    kept = DeltaTable(lake.directory / "audit").to_pyarrow_table().to_pylist()
    assert sum(not row["is_equal"] for row in kept) == 3
    assert sum(row["log_rows"] for row in kept) == RECORDS - RECORDS // 100


def test_a_lost_checkpoint_neither_doubles_nor_loses_rows(lake: Pipeline) -> None:
    lake.describe()
    assert lake.run("run", "orders_lake", "--once").returncode == 0
    shutil.move(lake.directory / ".penstock", lake.directory / "moved")
    lake.fill(range(RECORDS, RECORDS + 50))
    refused = lake.run("run", "orders_lake", "--once")
    assert refused.returncode == 1
    assert "Beginning anew would double its rows" in refused.stderr
    check = lake.run("check")
    assert check.returncode == 1
    assert "--adopt" in check.stdout
    adopted = lake.run("run", "--once", "--adopt")
    assert adopted.returncode == 0, adopted.stderr
    assert "50 offsets read" in adopted.stdout
    lake.assert_table_is_topic()
