"""Audit of a table of ten million rows, three of them tampered with: its time, and whether it names exactly those.

Lake and audit are run as a user runs them, `penstock spark run NAME --once`, so their times include the start of Spark.
The audit runs twice: when the table equals the topic, and when it does not.
"""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from benchmarks.spark import payload
from harness.penstock_node import PenstockNode
from penstock.client.blocking import SyncClient

TOPIC = "orders"
PARTITIONS = 4
DAYS = 2
DEADLINE_S = 900
FILE = """
cluster: {{bootstrap: ["{bootstrap}"]}}
spark: {{master: "local[2]", memory: 1g}}
pipelines:
  orders_lake:
    kind: lake
    from: {{topic: orders}}
    decode: {{key: text, value: json, schema: "n BIGINT, amount DOUBLE"}}
    to: {{delta: lake, compact: false}}
    max_batch: 512 MB
  orders_audit: {{kind: audit, of: orders_lake, to: {{delta: audit}}}}
"""
PAGE = Path(".penstock", "checkpoints", "orders_audit.html")


def measure(directory: Path, records: int) -> dict[str, Any]:
    """Seconds of the runs, the planted differences, and the audit's report."""
    with PenstockNode(directory) as node:
        with SyncClient(node.bootstrap) as client:
            client.create_topic(TOPIC, PARTITIONS)
        payload.produce(node.bootstrap, TOPIC, payload.orders(records, PARTITIONS, DAYS))
        (directory / "penstock.yml").write_text(FILE.format(bootstrap=node.bootstrap))
        lake_s, _ = _run(directory, "orders_lake", 0)
        equal_s, said = _run(directory, "orders_audit", 0)
        assert "the table is the topic" in said[0], said
        planted = _tamper(DeltaTable(directory / "lake"), records // PARTITIONS)
        differing_s, said = _run(directory, "orders_audit", 1)
    return {
        "rows": records,
        "partitions": PARTITIONS,
        "days": DAYS,
        "lake_s": lake_s,
        "equal_s": equal_s,
        "differing_s": differing_s,
        "planted": planted,
        "named": _named(said),
        "report": said,
        "chart": _chart((directory / PAGE).read_text()),
    }


def _run(directory: Path, pipeline: str, code: int) -> tuple[float, list[str]]:
    """Runs a pipeline; returns its seconds and the lines that it printed."""
    command = [sys.executable, "-m", "penstock", "spark", "run", pipeline, "--once"]
    began_s = time.perf_counter()
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    took_s = time.perf_counter() - began_s
    assert done.returncode == code, f"{pipeline} ended with {done.returncode}: {done.stdout} {done.stderr}"
    print(f"{pipeline} {took_s:6.1f} s", flush=True)
    return took_s, done.stdout.splitlines()


def _tamper(table: DeltaTable, in_each: int) -> list[str]:
    """Removes a row, duplicates one and changes an amount by a cent; returns the lines that an audit should report."""
    doubled, missing, altered = 70, in_each // 2, in_each - 1
    table.delete(f"partition = 1 AND offset = {missing}")
    amount = "named_struct('n', value['n'], 'amount', value['amount'] + 0.01)"
    table.update(predicate=f"partition = 2 AND offset = {altered}", updates={"value": amount})
    is_that = (pc.field("partition") == 0) & (pc.field("offset") == doubled)
    write_deltalake(table, table.to_pyarrow_dataset().to_table(filter=is_that), mode="append")
    return [
        f"doubled: partition 0, offset {doubled} (there 2 times)",
        f"missing: partition 1, offset {missing}",
        f"altered: partition 2, offset {altered}",
    ]


def _named(said: list[str]) -> list[str]:
    """The rows that differ: the lines of a report after the last empty line."""
    blank = max(number for number, line in enumerate(said) if not line)
    return said[blank + 1 :]


def _chart(page: str) -> str:
    """The chart in the audit's page, as a standalone file on a white background."""
    head, _, rest = page[page.index("<svg") : page.index("</svg>")].partition(">")
    return f"{head}>\n<rect width='100%' height='100%' fill='white'/>{rest}</svg>\n"
