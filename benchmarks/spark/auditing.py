"""Ten million rows in a table, three of them tampered with: whether an audit names those and no others, and how soon.

Lake and audit are run as a user runs them, `penstock spark run NAME --once`, so their times have the start of Spark in
them. The audit runs twice: when the table is the topic, and when it is not.
"""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from benchmarks.spark import payload
from penstock.client.blocking import SyncClient
from tests.compatibility.penstock_node import PenstockNode

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
    """Seconds, what was planted, and what the audit said."""
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
    """How long it took, and the lines that it printed."""
    command = [sys.executable, "-m", "penstock", "spark", "run", pipeline, "--once"]
    began_s = time.perf_counter()
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    took_s = time.perf_counter() - began_s
    assert done.returncode == code, f"{pipeline} ended with {done.returncode}: {done.stdout} {done.stderr}"
    print(f"{pipeline} {took_s:6.1f} s", flush=True)
    return took_s, done.stdout.splitlines()


def _tamper(table: DeltaTable, in_each: int) -> list[str]:
    """Takes a row away, adds one again and changes an amount by a cent; what an audit should say of it."""
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
    """The rows that differ, at the end of a report, behind the last empty line."""
    blank = max(number for number, line in enumerate(said) if not line)
    return said[blank + 1 :]


def _chart(page: str) -> str:
    """The picture in the audit's page, to stand alone, on white."""
    head, _, rest = page[page.index("<svg") : page.index("</svg>")].partition(">")
    return f"{head}>\n<rect width='100%' height='100%' fill='white'/>{rest}</svg>\n"
