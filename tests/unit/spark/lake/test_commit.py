"""A batch is committed to the table once, whichever process dies, returns, is restored or starts afresh."""

from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from penstock.spark.lake.commit import CommitRefused
from penstock.spark.lake.table import Moved, Note, notes, open_table, swap
from tests.unit.spark.lake.tables import batch, data_file, lake_table, offsets_in

SWAP = "penstock.spark.lake.commit.swap"


def test_batches_follow_each_other(tmp_path: Path) -> None:
    table = lake_table(tmp_path)
    assert [table.commit("query", batch(tmp_path, number)) for number in range(3)] == [True, True, True]
    assert offsets_in(tmp_path) == list(range(30))
    assert table.owner() == "query"
    assert table.ends() == {"orders": {"0": 30}}


def test_a_batch_that_spark_did_not_note_is_not_written_twice(tmp_path: Path) -> None:
    """The driver dies between the table's commit and Spark's: the same batch runs again."""
    table = lake_table(tmp_path)
    table.commit("query", batch(tmp_path, 0))
    again = batch(tmp_path, 0, name="retry")
    assert table.holds("query", 0, again.ends)
    assert not table.commit("query", again)
    assert offsets_in(tmp_path) == list(range(10))


def test_a_batch_without_rows_counts(tmp_path: Path) -> None:
    """All of its records were bad."""
    table = lake_table(tmp_path)
    table.commit("query", replace(batch(tmp_path, 0), files=[], rows=0, bad=10))
    assert table.holds("query", 0, {"orders": {"0": 10}})
    assert table.commit("query", batch(tmp_path, 1))
    assert offsets_in(tmp_path) == list(range(10, 20))
    opened = open_table(str(tmp_path))
    assert opened is not None
    assert [(note.batch, note.bad) for note in notes(opened)] == [(1, 0), (0, 10)]


# --- two drivers


def test_whoever_wakes_up_late_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver is paused after it read the table; a second one takes over; the first continues."""
    first, second = lake_table(tmp_path), lake_table(tmp_path)
    first.commit("query", batch(tmp_path, 0))

    def stopped_before(*arguments: object, **others: object) -> None:
        monkeypatch.setattr(SWAP, swap)
        assert second.commit("query", batch(tmp_path, 1, name="second"))
        swap(*arguments, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(SWAP, stopped_before)
    with pytest.raises(CommitRefused, match="Another run of orders_lake has just committed batch 1"):
        first.commit("query", batch(tmp_path, 1, name="first"))
    assert offsets_in(tmp_path) == list(range(20))


def test_others_may_write_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer commits between the read and the commit: the batch reads again and is written once."""
    table = lake_table(tmp_path)
    table.commit("query", batch(tmp_path, 0))

    def after_another(*arguments: object, **others: object) -> None:
        monkeypatch.setattr(SWAP, swap)
        opened = open_table(str(tmp_path))
        assert opened is not None
        swap(opened, [data_file(tmp_path, "other", [1000])], app=None, note="")
        swap(*arguments, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(SWAP, after_another)
    assert table.commit("query", batch(tmp_path, 1))
    assert offsets_in(tmp_path) == [*range(20), 1000]


def test_an_error_after_the_commit_is_no_reason_to_commit_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta's own checkpoint fails after the commit is written: the batch is in the table."""
    from deltalake.exceptions import DeltaError

    table = lake_table(tmp_path)
    table.commit("query", batch(tmp_path, 0))
    real = DeltaTable.create_write_transaction

    def fails_afterwards(self: DeltaTable, *arguments: object, **others: object) -> None:
        real(self, *arguments, **others)  # type: ignore[arg-type]
        raise DeltaError("no room for the checkpoint")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", fails_afterwards)
    assert table.commit("query", batch(tmp_path, 1))
    monkeypatch.undo()
    assert offsets_in(tmp_path) == list(range(20))


def test_an_error_instead_of_the_commit_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from deltalake.exceptions import DeltaError

    table = lake_table(tmp_path)
    table.commit("query", batch(tmp_path, 0))

    def fails(*_: object, **__: object) -> None:
        raise DeltaError("no room")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", fails)
    with pytest.raises(DeltaError, match="no room"):
        table.commit("query", batch(tmp_path, 1))


def test_a_change_is_made_to_the_version_that_was_looked_at_or_not_at_all(tmp_path: Path) -> None:
    """delta-rs itself accepts two changes that remove the same files, which would duplicate rows."""
    table = lake_table(tmp_path)
    table.commit("query", batch(tmp_path, 0))
    old = data_file(tmp_path, "part-0", range(10))
    first, second = open_table(str(tmp_path)), open_table(str(tmp_path))
    assert first is not None
    assert second is not None
    swap(first, [data_file(tmp_path, "a", range(10))], [old], app=None, note="")
    with pytest.raises(Moved):
        swap(second, [data_file(tmp_path, "b", range(10))], [old], app=None, note="")
    assert offsets_in(tmp_path) == list(range(10))


# --- checkpoints and tables of different ages


def test_a_new_checkpoint_does_not_double_the_table(tmp_path: Path) -> None:
    lake_table(tmp_path).commit("old", batch(tmp_path, 0))
    with pytest.raises(CommitRefused, match=r"written by another checkpoint of orders_lake \(query old\).*--adopt"):
        lake_table(tmp_path).commit("new", batch(tmp_path, 0, name="new"))
    assert offsets_in(tmp_path) == list(range(10))


def test_an_adopted_table_goes_on_where_it_ended_and_the_old_query_is_out(tmp_path: Path) -> None:
    old = lake_table(tmp_path)
    old.commit("old", batch(tmp_path, 0))
    adopting = lake_table(tmp_path, may_adopt=True)
    more = replace(batch(tmp_path, 1), number=0, starts=adopting.ends())
    assert adopting.commit("new", more)
    with pytest.raises(CommitRefused, match="query new"):
        old.commit("old", batch(tmp_path, 1, name="old"))
    assert lake_table(tmp_path).commit("new", replace(batch(tmp_path, 2), number=1))
    assert offsets_in(tmp_path) == list(range(30))


def test_a_table_that_grows_while_it_is_adopted_is_not_doubled(tmp_path: Path) -> None:
    old = lake_table(tmp_path)
    old.commit("old", batch(tmp_path, 0))
    adopting = lake_table(tmp_path, may_adopt=True)
    starts = adopting.ends()
    old.commit("old", batch(tmp_path, 1))
    with pytest.raises(CommitRefused, match="another run still writes"):
        adopting.commit("new", replace(batch(tmp_path, 1, name="new"), number=0, starts=starts))
    assert offsets_in(tmp_path) == list(range(20))


def test_a_restored_checkpoint_is_refused(tmp_path: Path) -> None:
    table = lake_table(tmp_path)
    for number in range(3):
        table.commit("query", batch(tmp_path, number))
    with pytest.raises(CommitRefused, match=r"has batch 2 of orders_lake already.*only at batch 1"):
        table.commit("query", batch(tmp_path, 1, name="again"))
    with pytest.raises(CommitRefused, match=r"Batch 2 of orders_lake in .* is another than the checkpoint has"):
        table.commit("query", replace(batch(tmp_path, 2, name="again"), ends={"orders": {"0": 999}}))


def test_a_restored_table_is_refused(tmp_path: Path) -> None:
    table = lake_table(tmp_path)
    table.commit("query", batch(tmp_path, 0))
    with pytest.raises(CommitRefused, match="checkpoint is at batch 2, the table ends with 0"):
        table.commit("query", batch(tmp_path, 2))


@pytest.mark.parametrize("has_table", [False, True])
def test_a_table_that_was_made_anew_is_not_filled_from_the_middle(tmp_path: Path, has_table: bool) -> None:
    if has_table:
        lake_table(tmp_path, "others_lake").commit("other", batch(tmp_path, 0, name="other"))
        message = "knows nothing of orders_lake, whose checkpoint is at batch 7"
    else:
        message = "checkpoint is at batch 7, the table has none"
    with pytest.raises(CommitRefused, match=message):
        lake_table(tmp_path).commit("query", batch(tmp_path, 7))


def test_other_columns_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa

    lake_table(tmp_path).commit("query", batch(tmp_path, 0))
    other = lake_table(tmp_path)
    other.schema = other.schema.append(pa.field("value", pa.string()))
    with pytest.raises(CommitRefused, match="has other columns than orders_lake writes"):
        other.commit("query", batch(tmp_path, 1))


def test_a_note_that_somebody_else_wrote_is_none() -> None:
    assert Note.from_json(None) is None
    assert Note.from_json("nightly load") is None
    assert Note.from_json('{"penstock": {"pipeline": "a"}}') is None
