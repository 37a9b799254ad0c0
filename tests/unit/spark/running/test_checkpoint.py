"""A checkpoint names its query and position, and damage is reported."""

from pathlib import Path

import pytest

from penstock.spark.running.checkpoint import Checkpoint, CheckpointError
from tests.unit.spark.running.checkpoints import write_checkpoint


def test_a_query_that_has_not_run(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "nothing")
    assert (checkpoint.query_id, checkpoint.last_planned, checkpoint.last_done, checkpoint.position()) == (None,) * 4


def test_a_query_whose_last_batch_is_not_done(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path, "query", planned=11, done=10)
    assert (checkpoint.query_id, checkpoint.last_planned, checkpoint.last_done) == ("query", 11, 10)
    assert checkpoint.position() == {"orders": {"0": 110}}
    assert checkpoint.ends(11) == {"orders": {"0": 120}}


@pytest.mark.parametrize("text", ["", "v1\n{}", "v2\n{}\n{}", "v1\n{}\n[1]", "v1\n{}\nnonsense", "v1\n{}\n{}\n{}"])
def test_damaged_offsets(tmp_path: Path, text: str) -> None:
    checkpoint = write_checkpoint(tmp_path, "query", planned=1, done=0)
    (tmp_path / "offsets" / "1").write_text(text)
    with pytest.raises(CheckpointError, match="is not what Spark writes there"):
        checkpoint.ends(1)


@pytest.mark.parametrize("text", ["", "{}", "[]"])
def test_damaged_metadata(tmp_path: Path, text: str) -> None:
    checkpoint = write_checkpoint(tmp_path, "query", planned=0, done=0)
    (tmp_path / "metadata").write_text(text)
    with pytest.raises(CheckpointError, match="metadata is not what Spark writes"):
        _ = checkpoint.query_id
