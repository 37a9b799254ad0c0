"""Splits of offset ranges: every offset once, small ranges combined, large ones divided, none too large."""

import pickle
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.metadata import TopicPartition
from penstock.spark.plan import (
    SLACK_DIVISOR,
    TASK_BYTES_MIN,
    Patience,
    Range,
    Split,
    Task,
    count_between,
    limited,
    packed,
    plan,
    plan_whole,
    task_count,
    unpacked,
)

MIB = 1 << 20


def tp(number: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, number)


def ranges(*sizes: tuple[int, int]) -> list[Range]:
    """Builds ranges from counts of offsets and of bytes."""
    return [Range(tp(number), 100, 100 + count, size) for number, (count, size) in enumerate(sizes)]


def counts(splits: Sequence[Split]) -> list[int]:
    return [sum(piece.end - piece.first for piece in split) for split in splits]


# --- whole partitions


def test_whole_partitions_are_spread_by_size() -> None:
    """The largest partition alone; none is divided, none left out."""
    found = plan_whole(ranges((10, 100), (10, 40), (10, 30), (10, 25)), 2)
    assert [[piece.partition.partition for piece in split] for split in found] == [[0], [1, 2, 3]]
    assert counts(found) == [10, 30]
    assert len(plan_whole(ranges((10, 0), (10, 0)), 5)) == 2


# --- how many tasks


@pytest.mark.parametrize(
    ("size_bytes", "tasks"),
    [(0, 1), (1, 1), (TASK_BYTES_MIN + 1, 2), (100 * MIB, 8), (1024 * MIB, 8), (1025 * MIB, 16), (128_000 * MIB, 1000)],
)
def test_tasks_are_as_many_as_cores_or_rounds_of_them_as_the_bytes_are_worth(size_bytes: int, tasks: int) -> None:
    assert task_count(size_bytes, cores=8, task_bytes=128 * MIB) == tasks


def test_who_asks_for_more_tasks_gets_them() -> None:
    assert task_count(10, cores=2, task_bytes=128 * MIB, tasks_min=50) == 50


# --- splits


def test_a_thousand_small_partitions_share_two_tasks() -> None:
    splits = plan(ranges(*[(3, 300)] * 1000), tasks=2)
    assert counts(splits) == [1500, 1500]
    assert sum(map(len, splits)) == 1000


def test_a_partition_that_holds_half_of_everything_is_divided() -> None:
    splits = plan(ranges((500, 500 * MIB), *[(10, 10 * MIB)] * 50), tasks=10)
    assert len(splits) == 10
    assert all(90 <= count <= 113 for count in counts(splits))
    assert sum(1 for split in splits for piece in split if piece.partition == tp(0)) in (5, 6)


def test_records_of_different_sizes_are_weighed_not_counted() -> None:
    splits = plan(ranges((1_000_000, 100 * MIB), (100, 100 * MIB)), tasks=2)
    assert counts(splits) == [1_000_000, 100]


def test_what_is_empty_or_upside_down_is_not_read() -> None:
    assert plan([Range(tp(0), 5, 5, 0), Range(tp(1), 7, 3, 100)], tasks=4) == []


def test_a_task_may_be_held_to_a_number_of_offsets() -> None:
    splits = plan(ranges((10, 10), (5, 5), (1, 1)), tasks=1, task_offsets_max=4)
    assert counts(splits) == [4, 4, 4, 4]


def test_only_the_first_piece_is_where_the_log_began() -> None:
    splits = plan([Range(tp(0), 0, 100, 100, is_from_start=True)], tasks=4)
    assert [piece.is_from_start for split in splits for piece in split] == [True, False, False, False]


@given(
    found=st.lists(
        st.builds(
            lambda first, count, size: (first, first + count, size),
            st.integers(0, 2**62),
            st.integers(-3, 10**6),
            st.integers(0, 2**40),
        ),
        max_size=40,
    ),
    tasks=st.integers(1, 200),
    offsets_max=st.one_of(st.none(), st.integers(10**4, 10**7)),
)
def test_every_offset_is_in_exactly_one_split_and_no_split_is_too_large(
    found: list[tuple[int, int, int]], tasks: int, offsets_max: int | None
) -> None:
    wanted = [Range(tp(number), *each) for number, each in enumerate(found)]
    splits = plan(wanted, tasks, offsets_max)

    read: dict[TopicPartition, list[tuple[int, int]]] = {}
    for split in splits:
        assert split
        assert len({piece.partition for piece in split}) == len(split), "a task reads a partition once"
        for piece in split:
            assert piece.first < piece.end
            read.setdefault(piece.partition, []).append((piece.first, piece.end))
    for each in wanted:
        pieces = read.get(each.partition, [])
        ends = [each.first] + [end for _, end in pieces]
        assert [first for first, _ in pieces] == ends[:-1], "one piece begins where the last one ended"
        assert ends[-1] == max(each.first, each.end)

    full = [each for each in wanted if each.first < each.end]
    total = sum(max(1, each.size_bytes) for each in full)
    means = {each.partition: max(1, each.size_bytes) / (each.end - each.first) for each in full}
    task_bytes = -(-total // tasks)
    for split in splits:
        size = sum((piece.end - piece.first) * means[piece.partition] for piece in split)
        # One record is never divided, however large it is.
        assert size <= task_bytes * (1 + 1 / SLACK_DIVISOR) * 1.001 + max(means[piece.partition] for piece in split)
        assert offsets_max is None or sum(piece.end - piece.first for piece in split) <= offsets_max
    largest = max(means.values(), default=0)
    if offsets_max is None and task_bytes > 4 * largest:
        assert len(splits) <= total / (task_bytes * (1 - 1 / SLACK_DIVISOR) - largest) + 1


# --- how far a micro-batch goes


def test_a_limit_is_shared_in_proportion_and_nobody_starves() -> None:
    start = {tp(0): 0, tp(1): 10, tp(2): 5}
    end = {tp(0): 900, tp(1): 110, tp(2): 5, tp(3): 7}
    assert limited(100, start, end) == {tp(0): 90, tp(1): 20, tp(2): 5, tp(3): 7}
    assert limited(1, start, end) == {tp(0): 1, tp(1): 11, tp(2): 5, tp(3): 7}
    assert limited(10**9, start, end) == end


@given(
    sizes=st.lists(st.integers(0, 10**12), min_size=1, max_size=30),
    limit=st.integers(1, 10**12),
)
def test_a_limit_is_kept_but_for_one_offset_per_partition_and_always_gets_on(sizes: list[int], limit: int) -> None:
    start = {tp(number): 7 for number in range(len(sizes))}
    end = {tp(number): 7 + size for number, size in enumerate(sizes)}
    found = limited(limit, start, end)
    assert all(start[each] <= found[each] <= end[each] for each in end)
    assert count_between(start, found) <= limit + len(sizes)
    assert count_between(start, found) >= min(1, sum(sizes))


def test_few_records_are_waited_with_but_not_for_ever() -> None:
    patience = Patience(offsets_min=100, delay_ms_max=1000)
    assert patience.is_over(0, now_ms=50_000), "the first batch comes at once"
    assert not patience.is_over(99, now_ms=50_999)
    assert patience.is_over(100, now_ms=50_999)
    assert not patience.is_over(1, now_ms=51_900)
    assert patience.is_over(1, now_ms=51_999)


# --- between the planner and its tasks


def test_a_split_travels_small_and_comes_out_as_it_went_in() -> None:
    (split,) = plan(
        [Range(tp(0), 0, 5, 1, is_from_start=True), Range(tp(7), 2**40, 2**40 + 1, 1), Range(tp(0, "x"), 1, 2, 1)],
        tasks=1,
    )
    ids = {"orders": b"o" * 16, "x": b"x" * 16, "others": b""}
    task = packed(split, ids)
    assert task.topics == (("orders", b"o" * 16), ("x", b"x" * 16))
    assert tuple(unpacked(task)) == split
    assert pickle.loads(pickle.dumps(task)) == task
    (alone,) = plan([Range(tp(3), 0, 5, 1)], tasks=1)
    assert len(pickle.dumps(packed(alone, ids))) < 150


def test_a_hundred_thousand_splits_are_few_bytes_each() -> None:
    splits = plan([Range(tp(number), 0, 10**9, 128 * MIB * 100) for number in range(1000)], tasks=100_000)
    assert 90_000 <= len(splits) <= 112_600
    assert isinstance(packed(splits[0], {"orders": bytes(16)}), Task)
