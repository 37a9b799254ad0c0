"""The checks of a group storm detect violations; `./dev campaign group-storm` runs storms."""

from pathlib import Path
from typing import Any, Final

import pytest

from tests.system.group_diaries import Diary, Shelf, findings
from tests.system.group_storm import buried

LIFE: Final = {"group": "g", "who": "a", "life": "a.1"}
OTHER: Final = {"group": "g", "who": "b", "life": "b.1"}


def story(*lines: tuple[dict[str, str], str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"t": 10 * at, "kind": kind, **life, **more} for at, (life, kind, more) in enumerate(lines)]


def has(*owned: int, generation: int = 1) -> dict[str, Any]:
    return {"generation": generation, "owned": list(owned)}


def commit(number: int, offset: int) -> dict[str, Any]:
    return {"number": number, "offsets": [[0, offset]]}


def done(number: int) -> dict[str, Any]:
    return {"number": number, "partitions": [0]}


def fetched(offset: int, began: int) -> dict[str, Any]:
    return {"began": began, "offsets": [[0, offset]]}


READ: Final = (LIFE, "read", {"partition": 0, "start": 0, "end": 9})


def test_a_partition_is_handed_over() -> None:
    assert not findings(
        story(
            (LIFE, "assigned", has(0, 1)),
            (LIFE, "revoked", has(0)),
            (OTHER, "assigned", has(1, generation=2)),
            (LIFE, "ended", {}),
            (OTHER, "assigned", has(0, 1, generation=3)),
        )
    )


def test_a_partition_is_assigned_twice() -> None:
    found = findings(
        story((LIFE, "assigned", has(0)), (LIFE, "revoked", has()), (OTHER, "assigned", has(0))),
    )
    assert [each.partition(":")[0] for each in found] == ["assigned twice"]


@pytest.mark.parametrize(("kind", "count"), [("lost", 0), ("revoked", 1), ("ended", 1), ("read", 1)])
def test_a_partition_is_had_by_two_unless_one_has_lost_it(kind: str, count: int) -> None:
    more = {"partition": 0, "start": 0, "end": 1} if kind == "read" else has(generation=2)
    found = findings(story((LIFE, "assigned", has(0)), (OTHER, "assigned", has(0, generation=2)), (LIFE, kind, more)))
    assert [each.partition(":")[0] for each in found] == ["at the same time"] * count


def test_who_is_killed_has_nothing() -> None:
    entries = story(
        (LIFE, "began", {}),
        (LIFE, "assigned", has(0)),
        ({}, "killed", {"names": ["a", "c"]}),
        (OTHER, "assigned", has(0, generation=2)),
    )
    assert findings(entries)
    assert not findings(buried(entries))


@pytest.mark.parametrize(
    ("offset", "is_lost"),
    [(5, False), (7, False), (3, True), (-1, True), (6, True)],
)
def test_a_fetch_shows_the_last_commit_or_one_of_unknown_end(offset: int, is_lost: bool) -> None:
    found = findings(
        story(
            READ,
            (LIFE, "commit", commit(1, 3)),
            (LIFE, "committed", done(1)),
            (LIFE, "commit", commit(2, 7)),  # outcome unknown
            (LIFE, "commit", commit(3, 5)),
            (LIFE, "committed", done(3)),
            (OTHER, "fetched", fetched(offset, 55)),
            (LIFE, "commit", commit(4, 6)),
        )
    )
    assert [each.partition(":")[0] for each in found] == ["commit lost"] * is_lost


def test_a_fetch_may_miss_a_commit_that_is_under_way() -> None:
    for offset in (-1, 3):
        assert not findings(
            story(
                READ,
                (LIFE, "commit", commit(1, 3)),
                (LIFE, "committed", done(1)),
                (OTHER, "fetched", fetched(offset, 15)),
            )
        )


@pytest.mark.parametrize(("start", "count"), [(3, 0), (2, 0), (4, 1)])
def test_what_nobody_has_read_must_not_be_committed(start: int, count: int) -> None:
    found = findings(
        story(
            (OTHER, "read", {"partition": 0, "start": start, "end": 6}),
            (LIFE, "read", {"partition": 0, "start": 0, "end": 3}),
            (LIFE, "commit", commit(1, 6)),
        )
    )
    assert [each.partition(":")[0] for each in found] == ["skipped"] * count


def test_what_a_member_says_is_wrong_is_a_finding(tmp_path: Path) -> None:
    with Diary(tmp_path / "a.diary") as diary:
        diary.write("problem", **LIFE, text="odd")
        shelf = Shelf(tmp_path)
        assert findings(shelf.read_on()) == ["a of g: odd"]
        assert not shelf.read_on()
