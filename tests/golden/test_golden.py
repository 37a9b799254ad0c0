"""Data directories of every format so far: the present code finds everything that was written in them."""

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

from penstock.log import checked
from penstock.log.checked import NewerFormat
from penstock.log.directory import FORMAT_VERSION, open_directory
from penstock.records.builder import BatchBuilder
from tests.golden.portrait import copy_of, describe, opened, portrait
from tests.simulation.log.histories import ZeroEntropy

HERE = Path(__file__).parent
FORMATS = sorted(path.name for path in HERE.glob("format-*"))
ALL = [(name, state) for name in FORMATS for state in ("clean", "crashed")]
BYTES_MAX = 200 * 1024


def test_every_format_is_kept() -> None:
    assert sorted(f"format-{version}" for version in range(1, FORMAT_VERSION + 1)) == FORMATS
    size_bytes = sum(path.stat().st_size for name in FORMATS for path in (HERE / name).rglob("*") if path.is_file())
    assert size_bytes < BYTES_MAX


@pytest.mark.parametrize(("name", "state"), ALL)
def test_everything_is_found_that_was_written(name: str, state: str) -> None:
    found = json.loads(json.dumps(portrait(HERE / name / state)))
    expected = json.loads((HERE / name / "expected.json").read_text())[state]
    assert found["logs"].keys() == expected["logs"].keys()
    for log in expected["logs"]:
        assert found["logs"][log] == expected["logs"][log], log
    assert found == expected


@pytest.mark.parametrize("name", FORMATS)
def test_they_hold_what_can_go_wrong(name: str) -> None:
    """A golden directory without a feature proves nothing about it."""
    expected = json.loads((HERE / name / "expected.json").read_text())
    for state in ("clean", "crashed"):
        logs = expected[state]["logs"]
        assert expected[state]["damage"] == expected[state]["scrub"] == []
        assert {batch[2] for log in logs.values() for batch in log["batches"]} == {
            "NONE",
            "GZIP",
            "SNAPPY",
            "LZ4",
            "ZSTD",
        }
        assert all(len(log["segments"]) >= 2 for topic, log in logs.items() if topic != "empty-0")
        assert len(logs["payments-12"]["aborted"]) > 3
        assert logs["payments-12"]["last_stable"] < logs["payments-12"]["high_watermark"]
        assert len(logs["orders-0"]["epochs"]) == 3
        assert len(logs["orders-0"]["producers"]) == 3
        assert logs["clicks.by-user-3"]["start"] > 0
        assert logs["empty-0"]["end"] == 0
    assert expected["clean"]["logs"]["payments-12"]["segments"][0][1] == 1, "a replaced segment"
    endings = {path.suffix for path in (HERE / name).rglob("*")}
    assert {".log", ".index", ".producers"} <= endings
    assert (expected["clean"]["scanned_bytes"], expected["clean"]["cut"]) == (0, [])
    assert expected["crashed"]["scanned_bytes"] > 0
    assert len(expected["crashed"]["cut"]) == 1


@pytest.mark.parametrize(("name", "state"), ALL)
def test_they_can_be_written_and_shut_down_today(name: str, state: str) -> None:
    expected = json.loads((HERE / name / "expected.json").read_text())[state]["logs"]

    async def go_on() -> None:
        directory = await opened(disk)
        for log in directory.logs.values():
            builder = BatchBuilder()
            builder.append(b"new", b"x" * 2000, timestamp_ms=0)
            log.append(builder.build(), leader_epoch=99, now_ms=0)
        await directory.commit()
        await directory.settle()
        await directory.close()
        directory = await opened(disk)
        found = json.loads(json.dumps(describe(directory, disk)))
        await directory.close()
        assert (found["scanned_bytes"], found["damage"], found["scrub"], found["cut"]) == (0, [], [], [])
        for log_name, log in found["logs"].items():
            assert log["batches"][:-1] == expected[log_name]["batches"]
            assert log["end"] == expected[log_name]["end"] + 1

    with copy_of(HERE / name / state) as disk:
        asyncio.run(go_on())


def test_a_directory_of_a_later_format_is_refused_in_words_and_not_touched() -> None:
    def print_of(root: Path) -> dict[str, str]:
        return {
            str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in root.rglob("*")
            if path.is_file()
        }

    async def try_it() -> None:
        identity = checked.read(disk, "directory", "directory", FORMAT_VERSION).value
        await checked.replace(disk, "directory", "directory", FORMAT_VERSION + 1, identity)
        before = print_of(Path(disk.root))
        with pytest.raises(NewerFormat) as caught:
            await open_directory(disk, cluster_id="golden", node_id=3, entropy=ZeroEntropy(), now_ms=0)
        assert str(caught.value) == (
            f"directory was written by a newer Penstock (format {FORMAT_VERSION + 1}, this program reads up to "
            f"{FORMAT_VERSION}): upgrade the program, or restore the directory from a backup made before the upgrade"
        )
        assert print_of(Path(disk.root)) == before

    with copy_of(HERE / f"format-{FORMAT_VERSION}" / "clean") as disk:
        asyncio.run(try_it())
