"""The cache of compiled code; without it, a slower decoder, one log line, the same rows."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numba
import pytest

from penstock.records.builder import BatchBuilder
from penstock.spark.columns import RecordRange, decode, kernels
from penstock.spark.columns.cache import NoCache, directory
from penstock.spark.columns.decoding import fastest
from penstock.spark.columns.loading import _load, load
from penstock.spark.columns.plain import PlainColumns

READ = """
import logging, sys
logging.basicConfig(format="logged: %(message)s")
from penstock.records.builder import BatchBuilder
from penstock.spark.columns import RecordRange, decode
from penstock.spark.columns.loading import load

builder = BatchBuilder()
builder.append(b"key", b"value")
for _ in range(3):
    (table,) = decode(bytes(builder.build()), RecordRange("orders", 0, 0, 10), None)
assert table.column("value").to_pylist() == [b"value"]
kernels = load()
print("plain" if kernels is None else sum(kernels.fill.stats.cache_hits.values()))
"""


def read_elsewhere(**environment: str) -> tuple[str, list[str]]:
    """Runs a fresh process; returns the decoder, plain or the number of cache hits of the compiled one, and the log."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PENSTOCK_CACHE", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", READ],
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), [line for line in done.stderr.splitlines() if line.startswith("logged: ")]


@pytest.fixture
def fresh() -> Iterator[None]:
    """Clears the loaded kernels of this process."""
    _load.cache_clear()
    yield
    _load.cache_clear()


def test_the_second_process_finds_what_the_first_has_compiled(tmp_path: Path) -> None:
    assert read_elsewhere(PENSTOCK_CACHE=str(tmp_path)) == ("0", [])
    assert list(tmp_path.rglob("*.nbc")), "machine code is kept where the variable says"
    assert read_elsewhere(PENSTOCK_CACHE=str(tmp_path)) == ("1", [])


def test_without_a_variable_it_is_the_users_cache_directory(tmp_path: Path) -> None:
    read_elsewhere(HOME=str(tmp_path))
    assert list((tmp_path / ".cache" / "penstock" / "kernels").rglob("*.nbc"))


def test_a_home_that_cannot_be_written_to_costs_a_sentence_and_some_seconds(tmp_path: Path) -> None:
    """Not even root can create a directory below a file."""
    (tmp_path / "home").write_text("")
    decoder, told = read_elsewhere(HOME=str(tmp_path / "home"))
    assert decoder == "0"
    (sentence,) = told
    assert "set PENSTOCK_CACHE to a directory that you alone can write to" in sentence


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not write")
def test_a_read_only_home_of_somebody_who_is_not_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fresh: None
) -> None:
    assert load() is not None  # Python's files may be readable by root only: everything needed is imported now
    _load.cache_clear()
    caplog.clear()
    home = tmp_path / "home"
    home.mkdir(mode=0o555)
    for parent in tmp_path.parents[:2]:
        parent.chmod(parent.stat().st_mode | 0o011)
    monkeypatch.delenv("PENSTOCK_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    os.seteuid(65534)
    try:
        loaded = load()
    finally:
        os.seteuid(0)
    assert loaded is not None
    (record,) = [each for each in caplog.records if each.name.startswith("penstock.spark")]
    assert "Permission denied" in record.getMessage()


def test_damage_in_the_cache_costs_a_sentence(tmp_path: Path) -> None:
    read_elsewhere(PENSTOCK_CACHE=str(tmp_path))
    for index in tmp_path.rglob("*.nbi"):
        index.write_bytes(b"not an index")
    decoder, told = read_elsewhere(PENSTOCK_CACHE=str(tmp_path))
    assert decoder == "0"
    assert len(told) == 1


def test_a_directory_that_others_can_write_to_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code in that directory is executed as our own."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    place = directory()
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o777)
    with pytest.raises(NoCache, match="others can write"):
        directory()


def test_other_code_keeps_its_own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    monkeypatch.setattr(numba.config, "CACHE_DIR", "elsewhere")
    assert load() is not None
    assert numba.config.CACHE_DIR == "elsewhere"


@pytest.mark.parametrize("cause", ["no numba", "not allowed", "does not compile"])
def test_without_a_compiler_the_plain_decoder_reads(
    cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fresh: None
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    match cause:
        case "no numba":
            monkeypatch.setitem(sys.modules, "numba", None)
        case "not allowed":
            monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
        case _:
            monkeypatch.setattr(kernels, "read_number", "not a function")
    builder = BatchBuilder()
    builder.append(b"key", b"value")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            (table,) = decode(bytes(builder.build()), RecordRange("orders", 0, 0, 10), None)
    assert fastest() is PlainColumns
    assert table.column("value").to_pylist() == [b"value"]
    (record,) = [each for each in caplog.records if each.name.startswith("penstock.spark")]
    assert "in plain Python" in record.getMessage()
    assert "\n" not in record.getMessage()


def test_the_core_needs_none_of_this() -> None:
    """`penstock` and its commands run from the bare wheel, and `penstock.spark` itself needs no compiler."""
    probe = (
        "import sys\n"
        "for name in ('numba', 'numpy', 'pandas', 'pyarrow', 'pyspark', 'deltalake'):\n"
        "    sys.modules[name] = None\n"
        "import penstock, penstock.cli.main, penstock.spark\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
