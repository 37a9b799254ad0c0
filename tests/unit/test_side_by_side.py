"""The benchmark's own checks and refusals, and that its pages show what was measured."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from benchmarks.side_by_side import growth, report, results
from benchmarks.side_by_side.brokers import Broker
from benchmarks.side_by_side.frames import INT32, fill_batch, make_batch, produce_answer, produce_request
from benchmarks.side_by_side.generator import Pipe, WrongAnswer
from benchmarks.side_by_side.jobs import Job, percentiles
from benchmarks.side_by_side.loads import Conditions, WrongCount, check_count
from benchmarks.side_by_side.payload import values
from benchmarks.side_by_side.reader import WrongData, walk
from benchmarks.side_by_side.replicated import check_counts
from benchmarks.side_by_side.results import CannotRecord, Spread, spread
from benchmarks.side_by_side.running import Plan
from benchmarks.side_by_side.trios import BROKERS, Trio
from harness import machine
from harness.machine import Cores
from harness.raw_client import Topic
from penstock.records.header import patch

TOPIC_ID = b"sixteen bytes id"


# --- the load ---------------------------------------------------------------------------------------------------------


@contextmanager
def a_peer_that_says(answer: bytes) -> Iterator[str]:
    """Accepts one request and answers with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as place:

        def serve() -> None:
            connection, _ = place.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{place.getsockname()[1]}"
        finally:
            thread.join(10)


def answers_to_one_request(answer: bytes) -> int:
    request = produce_request(TOPIC_ID, 0, make_batch([b"value"]).data)
    with a_peer_that_says(answer) as address:
        pipe = Pipe(address, [request], 1)
        with pipe.socket:
            pipe.begin_requests(0)
            assert pipe.send()
            pipe.socket.settimeout(10)
            return pipe.receive()


def test_a_good_answer_counts() -> None:
    assert answers_to_one_request(bytes(produce_answer(TOPIC_ID, base_offset=7))) == 1


def test_an_error_in_an_answer_is_not_counted_as_success() -> None:
    with pytest.raises(WrongAnswer, match="error 3"):
        answers_to_one_request(bytes(produce_answer(TOPIC_ID, error=3)))


def test_an_answer_to_another_request_is_refused() -> None:
    answer = produce_answer(TOPIC_ID)
    INT32.pack_into(answer, 4, 41)
    with pytest.raises(WrongAnswer, match="answer 41 came, 0 was awaited"):
        answers_to_one_request(bytes(answer))


def test_half_an_answer_is_waited_for() -> None:
    assert answers_to_one_request(bytes(produce_answer(TOPIC_ID))[:-1]) == 0


def batches(*base_offsets: int) -> memoryview:
    """Builds batches of three records each."""
    whole = bytearray()
    for offset in base_offsets:
        batch = bytearray(make_batch([b"one", b"two", b"three"]).data)
        patch(batch, offset, 0)
        whole += batch
    return memoryview(whole)


def test_a_reader_counts_records_from_the_offset_that_it_asked_for() -> None:
    whole = batches(0, 3)
    assert walk(whole, 0)[::2] == (6, 6)
    assert walk(whole, 1)[::2] == (5, 6)
    assert walk(whole[:-1], 0)[::2] == (3, 3), "the last batch is cut off"


def test_a_reader_does_not_overlook_a_gap() -> None:
    with pytest.raises(WrongData, match=r"offset 6 .* expected offset 3"):
        walk(batches(0, 6), 0)


def test_batches_are_as_large_as_asked_for_and_never_empty() -> None:
    batch = fill_batch(values("random", 100), 64 * 1024)
    assert 64_000 < len(batch.data) <= 64 * 1024
    assert batch.value_bytes == batch.records * 100
    assert fill_batch(values("json", 1000), 1).records == 1


# --- the figures ------------------------------------------------------------------------------------------------------


def test_what_is_not_in_the_log_gives_no_figure() -> None:
    class Forgetful:
        name = "forgetful"

        def end(self, _topic: Topic, _partitions: int) -> int:
            return 99

    broker = cast("Broker", Forgetful())
    check_count(broker, Topic("t", TOPIC_ID), 1, 99)
    with pytest.raises(WrongCount, match="acknowledged 100 records and has 99"):
        check_count(broker, Topic("t", TOPIC_ID), 1, 100)


def test_a_record_that_one_of_three_brokers_lacks_is_missed() -> None:
    class Short:
        name = "three"

        def end(self, topic: Topic, _partitions: int) -> int:
            return 99 if topic.name == "b" else 100

    topics = {leader: Topic(name, TOPIC_ID) for leader, name in zip(BROKERS, "abc", strict=True)}
    check_counts(cast("Trio", Short()), topics, 1, 299)
    with pytest.raises(WrongCount, match="three acknowledged"):
        check_counts(cast("Trio", Short()), topics, 1, 300)


def test_connections_take_turns_at_the_brokers() -> None:
    places = [("one:1", "aa"), ("two:2", "bb"), ("three:3", "cc")]
    job = Job("one:1", "t", "aa", 2, connections=6, settings={"places": places})
    found = [job.at_place(number) for number in range(6)]
    assert [(address, share.topic_id, place) for address, share, place in found] == [
        *((address, topic_id, 0) for address, topic_id in places),
        *((address, topic_id, 1) for address, topic_id in places),
    ]
    assert {share.connections for _, share, _ in found} == {2}
    alone = Job("one:1", "t", "aa", 1)
    assert alone.at_place(5) == ("one:1", alone, 5)


def test_percentiles_are_not_made_up_from_too_few() -> None:
    assert percentiles([1_000_000, 3_000_000]) == {"p50": 3.0, "p99": None, "p999": None}
    assert percentiles([each * 1_000_000 for each in range(1000)]) == {"p50": 500.0, "p99": 990.0, "p999": 999.0}


def test_a_process_is_charged_for_what_it_uses() -> None:
    before = machine.sample(os.getpid())
    while machine.cpu_seconds(os.getpid()) < before.cpu_s + 0.05:
        sum(range(10_000))
    after = machine.sample(os.getpid())
    assert 0.04 <= after.cpu_s - before.cpu_s <= after.at_s - before.at_s + 0.5
    assert machine.resident_bytes(os.getpid())[1] > 1_000_000


def test_the_middle_of_several_rounds_and_their_spread() -> None:
    rounds: list[dict[str, Any]] = [
        {"mb_s": 3.0, "ack_ms": {"p99": None}},
        {"mb_s": 1.0, "ack_ms": {"p99": 5.0}},
        {"mb_s": 2.0},
    ]
    assert spread(rounds, "mb_s") == Spread(2.0, 1.0, 3.0)
    assert spread(rounds, "ack_ms", "p99") == Spread(5.0, 5.0, 5.0)
    assert spread(rounds, "end_to_end_ms", "p99") is None


# --- recorded results -------------------------------------------------------------------------------------------------

PLAN = Plan(Conditions(Cores((0,), (0,))), 1, 0.0)


def a_round(**more: Any) -> dict[str, Any]:
    return {
        "mb_s": 100.0,
        "records_s": 1e6,
        "requests_s": 1e3,
        "broker_cpu": 0.5,
        "cpu_s_per_gb": 5.0,
        "load_cpu": 0.5,
        "load_is_limit": False,
        "others_cpu": 0.01,
        "rss_peak_mb": 50.0,
        "rss_end_mb": 40.0,
        "ack_ms": {"p50": 1.0, "p99": 2.0, "p999": None},
        **more,
    }


def rows(*ours: dict[str, Any], **kafka: Any) -> results.Rows:
    found = {"penstock": list(ours) or [a_round()], "kafka": [a_round(mb_s=50.0, **kafka)]}
    measured = {
        "title": "a load",
        "unit": "mb_s",
        "rounds": found,
        "ready_s": {"penstock": 0.5, "kafka": 5.0},
        "versions": {"penstock": "Penstock 1", "kafka": "Apache Kafka 4"},
    }
    return results.merged({}, {"produce-1": measured}, PLAN)


def test_the_page_has_both_sides_every_column_and_their_ratio() -> None:
    text = report.page(rows())
    assert "| a load | 100 MB/s | 50 MB/s | 2.00 | 5 | 5 |" in text
    for title, _, _ in report.COLUMNS:
        assert f"| {title} |" in text
    assert "the load is the limit" not in text
    assert "noisy" not in text


def test_the_page_says_when_the_load_was_the_limit_or_the_machine_was_busy() -> None:
    assert "the load is the limit" in report.page(rows(load_is_limit=True))
    assert "noisy: others were at work" in report.page(rows(others_cpu=0.4))


def test_a_run_replaces_its_rows_and_leaves_the_others() -> None:
    before = rows() | {"small": {"kept": True}}
    after = results.merged(before, rows(a_round(mb_s=7.0)), PLAN)
    assert after["small"] == {"kept": True}
    assert after["produce-1"]["rounds"]["penstock"][0]["mb_s"] == 7.0


def test_figures_of_uncommitted_code_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: object())  # pretends that matplotlib exists
    monkeypatch.setattr(machine, "commit", lambda: "abc1234+")
    with pytest.raises(CannotRecord, match="commit them"):
        results.check_recordable(PLAN)
    monkeypatch.setattr(machine, "commit", lambda: "abc1234")
    results.check_recordable(PLAN)


@pytest.mark.skipif(not (results.FOLDER / results.FILE).exists(), reason="nothing is recorded yet")
def test_the_recorded_page_is_made_of_the_recorded_figures_alone() -> None:
    found = results.load()
    assert (results.FOLDER / report.PAGE).read_text() == report.page(found), "a figure was changed by hand"
    for row in found.values():
        assert not row["measured"]["commit"].endswith("+")


@pytest.mark.skipif(not (results.FOLDER / growth.FILE).exists(), reason="nothing is recorded yet")
def test_the_recorded_page_of_growth_is_made_of_the_recorded_figures_alone() -> None:
    found = json.loads((results.FOLDER / growth.FILE).read_text())["series"]
    assert (results.FOLDER / growth.PAGE).read_text() == growth.page(found), "a figure was changed by hand"
    for series in found.values():
        assert not series["measured"]["commit"].endswith("+")


@pytest.mark.parametrize(("slope", "words"), [(-0.4, "falls"), (0.0, "stays the same"), (1.0, "in proportion")])
def test_growth_in_words(slope: float, words: str) -> None:
    points = [(float(x), 3.0 * x**slope) for x in (1, 10, 100, 1000)]
    assert growth.exponent(points) == pytest.approx(slope)
    assert words in growth.in_words(growth.exponent(points))
