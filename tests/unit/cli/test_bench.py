"""`penstock bench`: batches, bounds and percentiles; no figure is reported for records that are not in the log."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.cli.bench.loads import (
    Bounds,
    Budget,
    Run,
    Shape,
    check_answer,
    check_growth,
    make_batch,
    percentiles,
    rates,
)
from penstock.cli.bench.topic import BenchTopic
from penstock.cli.errors import Failed
from penstock.client.errors import Refused
from penstock.model.errors import ErrorCode
from penstock.records.header import BatchView
from penstock.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests.unit.cli.conftest import Penstock


def test_a_batch_is_full_but_not_larger_than_asked_for() -> None:
    made = make_batch(Shape(record_bytes=100, batch_bytes=10_000))
    assert 9_500 < len(made.data) <= 10_000
    assert BatchView(made.data).count == made.records
    assert BatchView(made.data).is_intact


def test_a_batch_has_one_record_at_least_and_as_many_as_are_left_at_most() -> None:
    assert make_batch(Shape(record_bytes=5_000, batch_bytes=1)).records == 1
    assert make_batch(Shape(record_bytes=100, batch_bytes=10_000), 7).records == 7


def test_a_budget_of_records_ends_with_the_last_one() -> None:
    budget = Budget(Bounds(records=25, seconds=None))
    assert [budget.take(10) for _ in range(4)] == [10, 10, 5, 0]


def test_a_budget_of_time_ends_when_it_is_over() -> None:
    assert Budget(Bounds(records=None, seconds=60)).take(10) == 10
    assert Budget(Bounds(records=None, seconds=0)).take(10) == 0


def test_percentiles_are_not_made_up_from_too_few() -> None:
    found = percentiles("ack", [each * 1_000_000 for each in range(200)])
    assert found == {"ack_p50_ms": 100.0, "ack_p99_ms": 198.0, "ack_p999_ms": None, "ack_max_ms": 199.0}
    assert percentiles("ack", [])["ack_max_ms"] is None


def test_rates_are_of_values() -> None:
    assert rates(1000, 100, 2.0) == {"records": 1000, "seconds": 2.0, "records_per_s": 500.0, "mb_per_s": 0.05}


@pytest.mark.parametrize(
    ("end", "is_new", "is_well"), [(10, True, True), (9, True, False), (11, True, False), (11, False, True)]
)
def test_what_was_acknowledged_must_be_in_the_log(end: int, is_new: bool, is_well: bool) -> None:
    """A new topic holds exactly our records; other clients may also write to a topic that existed before."""

    async def offsets(*_: object, **__: object) -> dict[int, Any]:
        return {0: SimpleNamespace(offset=end)}

    client = cast("Any", SimpleNamespace(admin=SimpleNamespace(offsets=offsets)))
    run = Run(client, BenchTopic("t", bytes(16), (0,), is_new), lambda _count: None)
    if is_well:
        asyncio.run(check_growth(run, {0: 0}, 10))
    else:
        with pytest.raises(Failed, match=f"10 records were acknowledged and {end} are in the log"):
            asyncio.run(check_growth(run, {0: 0}, 10))


def test_a_refused_batch_is_not_an_acknowledged_one() -> None:
    part = PartitionProduceResponse(index=0, error_code=ErrorCode.MESSAGE_TOO_LARGE, base_offset=-1)
    answer = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[part])])
    with pytest.raises(Refused, match=r"partition 0: MESSAGE_TOO_LARGE: .*raise max\.message\.bytes"):
        check_answer(answer)


def test_without_acks_there_is_nothing_to_measure(penstock: Penstock) -> None:
    result = penstock("bench", "produce", "--acks", "0")
    assert result.code == 2
    assert "use --acks all" in result.err


def test_nobody_there_is_said_in_a_sentence(penstock: Penstock) -> None:
    result = penstock("bench", "latency", "-b", "127.0.0.1:1", "-n", "1")
    assert result.code == 1
    assert "Start one with `penstock dev`" in result.err
