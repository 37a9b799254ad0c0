"""The run that took the claim last writes; one that it has overtaken is refused, wherever it is."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.spark.lake.commit import Batch, CommitRefused
from penstock.spark.running.claim import FILE, Claim
from penstock.spark.running.lake_stream import BatchResult, LakeStream
from tests.unit.spark.lake.tables import batch, lake_table, offsets_in
from tests.unit.spark.running.checkpoints import write_checkpoint


def test_the_last_one_has_it(tmp_path: Path) -> None:
    first, second = Claim(tmp_path), Claim(tmp_path)
    assert (first.is_held, first.successor()) == (False, None)
    first.take()
    assert (first.is_held, second.is_held) == (True, False)
    assert second.successor() is None, "a run without a batch has nothing to lose"
    second.take()
    assert (first.is_held, second.is_held) == (False, True)
    told = first.successor()
    assert told is not None
    assert told.startswith(f"process {json.loads((tmp_path / FILE).read_text())['process']} on ")
    first.take()
    assert second.is_held, "a run never takes it back"


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_a_claim_that_cannot_be_read_belongs_to_nobody_else(tmp_path: Path, text: str) -> None:
    claim = Claim(tmp_path)
    claim.take()
    (tmp_path / FILE).write_text(text)
    assert claim.is_held
    (tmp_path / FILE).unlink()
    assert claim.is_held


# --- a stream


class Stream(LakeStream):
    """A stream on a checkpoint and a table, whose tasks are replaced by `work`."""

    def __init__(self, home: Path, work: Any = None) -> None:
        checkpoint = write_checkpoint(home / "checkpoint", "query", planned=0, done=-1)
        self._spark = cast("Any", SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty=lambda _: "query")))
        self._lake = cast("Any", SimpleNamespace(name="orders_lake"))
        self._checkpoint = checkpoint
        self._source = None
        self._work = work or (lambda: None)
        self.claim = Claim(checkpoint.path)
        self.table = lake_table(home / "table")
        self.beginning = cast("Any", SimpleNamespace(behind=None))
        self.is_closing = self.has_closed = self.is_busy = False
        self.failure = None
        self.results: list[BatchResult] = []
        self.told = self.results.append

    def _written(self, number: int, ends: Any) -> list[Any]:
        self._work()
        made: Batch = batch(Path(self.table.uri), number, name=f"part-{id(self)}")
        return [SimpleNamespace(files=made.files, rows=made.rows, bad=0, newest_us=None)]

    def run(self, number: int) -> None:
        self._run(cast("Any", None), number)


def test_a_run_that_comes_back_during_a_batch_is_refused_though_it_has_nothing_left_to_do(tmp_path: Path) -> None:
    """The successor has committed the same batch: the run must not record it as done, and win the next race."""
    successor = Stream(tmp_path)
    resumed = Stream(tmp_path, lambda: successor.run(0))
    with pytest.raises(CommitRefused, match="has taken over its checkpoint: this one stops"):
        resumed.run(0)
    assert isinstance(resumed.failure, CommitRefused)
    assert resumed.overtaken() is not None
    assert (resumed.results, len(successor.results)) == ([], 1)
    assert offsets_in(tmp_path / "table") == list(range(10))


def test_a_run_that_comes_back_before_its_commit_does_not_commit(tmp_path: Path) -> None:
    successor = Stream(tmp_path)
    resumed = Stream(tmp_path, successor.claim.take)
    with pytest.raises(CommitRefused, match="has taken over"):
        resumed.run(0)
    assert not (tmp_path / "table" / "_delta_log").exists()


def test_the_successor_s_claim_is_the_cause_of_any_failure(tmp_path: Path) -> None:
    successor = Stream(tmp_path)

    def lost() -> None:
        successor.claim.take()
        raise RuntimeError("ExecutorLostFailure")

    resumed = Stream(tmp_path, lost)
    with pytest.raises(CommitRefused, match="has taken over"):
        resumed.run(0)
    assert isinstance(resumed.failure, CommitRefused)


def test_a_run_that_comes_too_late_takes_no_claim(tmp_path: Path) -> None:
    successor, late = Stream(tmp_path), Stream(tmp_path)
    successor.run(0)
    write_checkpoint(tmp_path / "checkpoint", "query", planned=1, done=0)
    with pytest.raises(CommitRefused, match="is at batch 1, and this one at 0"):
        late.run(0)
    assert successor.claim.is_held


def test_a_run_goes_on_from_batch_to_batch(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.run(0)
    write_checkpoint(tmp_path / "checkpoint", "query", planned=1, done=0)
    stream.run(1)
    assert [each.batch for each in stream.results] == [0, 1]
    assert stream.claim.is_held
