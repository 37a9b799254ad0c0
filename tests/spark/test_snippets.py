"""The Spark snippets of README.md and docs/spark.md, in a session of Spark as pip installs it, without a jar."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness.penstock_node import PenstockNode
from penstock.client.blocking import SyncClient
from tests.fenced import Block, blocks_of
from tests.spark.lake.pipelines import environment

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("spark")]

LIMIT_S = 300
SESSION = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
"""
BEGUN = SHOWN = """
(query,) = spark.streams.active
query.processAllAvailable()
"""
PUBLISHED = """
from penstock import Client

with Client.blocking("localhost:9092") as client:
    client.publish("payments", b"12.50")
"""
COLUMNS = """
print("columns", orders.columns)
"""


def snippet(page: str) -> Block:
    (found,) = [block for block in blocks_of(page) if block.language == "python" and "spark." in block.text]
    return found


def run(code: str, directory: Path, bootstrap: str) -> str:
    for address in ("localhost:9092", "broker-1:9092"):
        code = code.replace(address, bootstrap)
    (directory / "program.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=directory,
        env={**environment(), "PYSPARK_PYTHON": sys.executable},  # as in an environment that is activated
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_snippets_read_what_is_written(penstock: PenstockNode, client: SyncClient, tmp_path: Path) -> None:
    """A stream begins at the end of the topic, as with Spark's own connector: the record comes afterwards."""
    for topic in ("payments", "orders"):
        client.create_topic(topic, exist_ok=True)
    first, second = snippet("README.md").text, snippet("docs/spark.md").text
    printed = run(SESSION + first + BEGUN + PUBLISHED + SHOWN + second + COLUMNS, tmp_path, penstock.bootstrap)
    assert "[31 32 2E 35 30]" in printed, "the console shows bytes"
    assert "columns ['key', 'value', 'topic', 'partition', 'offset', 'timestamp', 'timestampType']" in printed
