"""`penstock log dump`: batches and records of segment files, and where damage begins."""

import json
from pathlib import Path

import pytest

from penstock.records.builder import BatchBuilder
from penstock.records.header import patch
from tests.unit.cli.conftest import Penstock


def a_batch(base_offset: int, *values: str) -> bytearray:
    builder = BatchBuilder()
    for number, value in enumerate(values):
        builder.append(b"k", value.encode(), (("h", b"1"),) if number == 0 else (), 1_000 + number)
    batch = builder.build()
    patch(batch, base_offset, 3)
    return batch


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A segment of two batches in the directory of a log."""
    path = tmp_path / "orders-0" / "00000000000000000000-0.log"
    path.parent.mkdir()
    path.write_bytes(a_batch(0, "one", "two") + a_batch(2, "three"))
    return path


def test_batches_and_records_are_printed(penstock: Penstock, segment: Path) -> None:
    done = penstock("log", "dump", "orders-0", "--records")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "orders-0/00000000000000000000-0.log:"
    assert lines[1].startswith("  0–1: 2 records, ")
    assert lines[1].endswith("at 0, none, leader epoch 3")
    assert lines[2:4] == ["    0  1000  k = one h=1", "    1  1001  k = two"]
    assert lines[5] == "    2  1000  k = three h=1"


def test_programs_get_a_line_of_json_each(penstock: Penstock, segment: Path) -> None:
    done = penstock("log", "dump", str(segment), "--records", "--from", "1", "-o", "json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row.get("offset") for row in rows] == [0, None, 2, None]
    assert [row["record"] for row in rows if "record" in row] == [1, 2]
    assert rows[0]["intact"] is True


def test_a_wrong_checksum_is_damage(penstock: Penstock, segment: Path) -> None:
    content = bytearray(segment.read_bytes())
    content[70] ^= 1
    segment.write_bytes(content)
    done = penstock("log", "dump", "orders-0")
    assert done.code == 1
    assert "0–1: 2 records" in done.out
    assert "WRONG CHECKSUM" in done.out
    assert "2–2: 1 records" in done.out, "the rest is shown, too"


def test_a_batch_that_is_cut_off_is_damage_and_zeros_are_not(penstock: Penstock, segment: Path) -> None:
    whole = segment.read_bytes()
    segment.write_bytes(whole + b"\0" * 100)
    done = penstock("log", "dump", "orders-0")
    assert (done.code, done.out.splitlines()[-1]) == (
        0,
        f"  100 zeros from position {len(whole)} on: room that was not written yet",
    )
    segment.write_bytes(whole[:-3])
    done = penstock("log", "dump", "orders-0")
    assert done.code == 1
    assert f"DAMAGED from position {len(a_batch(0, 'one', 'two'))} on" in done.out
    segment.write_bytes(b"")
    assert penstock("log", "dump", "orders-0").code == 0


def test_what_is_no_log_is_named(penstock: Penstock, tmp_path: Path) -> None:
    assert "there is no nowhere: the logs of a node" in penstock("log", "dump", "nowhere").err
    (tmp_path / "empty").mkdir()
    assert "empty has no segments" in penstock("log", "dump", "empty").err
