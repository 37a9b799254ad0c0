"""Histories as text: round trips, errors for broken lines, and truncated ends left out."""

import io
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.verify.check import check, check_lines
from penstock.verify.history import (
    FUNCTIONS,
    BadEvent,
    BadLine,
    Event,
    HistoryError,
    line_of,
    merge_histories,
    read_history,
)
from penstock.verify.recorder import Recorder
from tests.unit.verify.story import P, Q, Story

names = st.text(max_size=8) | st.integers(0, 2**62)
values = st.recursive(names | st.none(), lambda inner: st.lists(inner, max_size=4), max_leaves=12)
events = st.builds(
    Event,
    index=st.integers(0, 2**62),
    time_ns=st.integers(0, 2**62),
    process=names,
    type=st.sampled_from(["invoke", "ok", "fail", "info"]),
    function=st.sampled_from(sorted(FUNCTIONS)),
    value=st.none() | st.lists(values, max_size=4),
    operation=st.none() | st.integers(0, 2**62),
    error=st.none() | st.text(max_size=8),
    producer_id=st.none() | st.integers(0, 2**62),
    producer_epoch=st.none() | st.integers(0, 2**15),
    client=st.none() | st.text(max_size=8),
    rebalanced=st.none() | st.lists(names, max_size=3),
)


@given(st.lists(events, max_size=5))
def test_every_event_survives_the_way_through_text(history: list[Event]) -> None:
    text = "".join(map(line_of, history))
    assert text.count("\n") == len(history)
    assert list(read_history(io.StringIO(text, newline="\n"))) == history


def test_a_recorder_writes_what_a_reader_reads() -> None:
    file = io.StringIO()
    ticks = count(100, 10)
    recorder = Recorder(lambda: next(ticks), file.write)
    send = recorder.invoke("a", "send", [(P, None, "x")], pid=7, epoch=1, client="librdkafka 2.16.1")
    poll = recorder.invoke("r", "poll")
    poll.ok([(P, 0, "x")], rebalanced=[Q])
    send.info("timed out")
    recorder.invoke("c", "commit", [("g", P, 1)]).fail("refused")
    file.seek(0)
    assert list(read_history(file)) == [
        Event(0, 100, "a", "invoke", "send", [[P, None, "x"]], None, None, 7, 1, "librdkafka 2.16.1"),
        Event(1, 110, "r", "invoke", "poll"),
        Event(2, 120, "r", "ok", "poll", [[P, 0, "x"]], 1, rebalanced=[Q]),
        Event(3, 130, "a", "info", "send", None, 0, "timed out", 7, 1),
        Event(4, 140, "c", "invoke", "commit", [["g", P, 1]]),
        Event(5, 150, "c", "fail", "commit", None, 4, "refused"),
    ]


def test_an_operation_ends_once() -> None:
    send = Story().begin_send("a", "x")
    send.fail("refused")
    with pytest.raises(ValueError, match="has ended before"):
        send.ok()


def test_a_last_line_that_was_cut_off_is_left_out() -> None:
    story = Story()
    story.send("a", (0, "x"))
    story.poll("r", (0, "x"))
    text = "".join(map(line_of, story.events))
    for end in range(len(text) + 1):
        report = check_lines(io.StringIO(text[:end]))
        assert report.counts.operations <= 2
    assert len(list(read_history(io.StringIO(text[:-1])))) == 4
    assert len(list(read_history(io.StringIO(text[:-2])))) == 3


LINE = line_of(Event(0, 0, "a", "invoke", "poll"))


@pytest.mark.parametrize(
    "bad",
    [
        "{\n",
        "nonsense\n",
        "[1, 2]\n",
        LINE[:-1] + LINE,
        '{"i":1,"t":1,"p":"a","type":"invoke"}\n',
        '{"i":"1","t":1,"p":"a","type":"invoke","f":"poll"}\n',
        '{"i":1,"t":1,"p":null,"type":"invoke","f":"poll"}\n',
        '{"i":1,"t":1,"p":"a","type":"begin","f":"poll"}\n',
        '{"i":1,"t":1,"p":"a","type":"invoke","f":"dance"}\n',
        '{"i":1,"t":1,"p":"a","type":"invoke","f":"poll","value":"x"}\n',
    ],
)
def test_a_bad_line_is_named(bad: str) -> None:
    with pytest.raises(BadLine, match="line 2") as caught:
        list(read_history(io.StringIO(LINE + bad + LINE)))
    assert caught.value.line_number == 2


def test_empty_lines_do_not_matter() -> None:
    assert len(list(read_history(io.StringIO("\n" + LINE + "\n")))) == 1


@pytest.mark.parametrize(
    ("function", "asked", "value"),
    [
        ("poll", None, [[P, 0]]),
        ("poll", None, [[P, None, "x"]]),
        ("poll", None, [[P, -1, "x"]]),
        ("poll", None, [[P, 1 << 70, "x"]]),
        ("poll", None, [[P, 0, ["x"]]]),
        ("poll", None, [[[], 0, "x"]]),
        ("poll", None, [7]),
        ("send", [[P, None, "x"]], [[P, "0", "x"]]),
        ("send", [[P, None, "x"]], [[P, 0, "y"]]),
        ("send", [[P, None, "x"]], [[Q, 0, "x"]]),
        ("txn", [["send", P, None, "x"]], [["send", P, 0, "y"]]),
        ("txn", [], [["poll"]]),
        ("txn", [], [{}]),
        ("assign", [], [[P]]),
        ("list_offsets", [], [[P, "latest", None]]),
        ("commit", [["g"]], None),
    ],
)
def test_a_value_of_the_wrong_shape_is_named(function: Any, asked: Any, value: Any) -> None:
    story = Story()
    story.invoke("a", function, asked).ok(value)
    with pytest.raises(BadEvent, match=r"event [01]:"):
        story.report()


def test_events_that_do_not_fit_are_named() -> None:
    story = Story()
    story.send("a", (0, "x"))
    invoke, ok = story.events
    with pytest.raises(BadEvent, match="event 0: comes after"):
        check([invoke, invoke])
    with pytest.raises(BadEvent, match="event 1: completes no open send"):
        check([ok])
    with pytest.raises(BadEvent, match="event 5: completes no open send"):
        check([invoke, ok, replace(ok, index=5)])
    with pytest.raises(BadEvent, match="event 1: completes no open send of b"):
        check([invoke, replace(ok, process="b")])
    with pytest.raises(BadEvent, match="event 2: 'x' was sent to orders-0 before"):
        check([invoke, ok, replace(invoke, index=2)])


@given(st.lists(events, max_size=6))
def test_whatever_a_history_holds_it_is_checked_or_refused(history: list[Event]) -> None:
    numbered = [replace(event, index=index, operation=None) for index, event in enumerate(history)]
    with suppress(HistoryError):
        check(numbered).text()


def test_without_numbers_the_oldest_open_invoke_is_meant() -> None:
    story = Story()
    first, second = story.begin_send("a", "x"), story.begin_send("a", "y")
    first.ok([[P, 0, "x"]])
    second.ok([[P, 1, "y"]])
    story.poll("r", (0, "x"), (1, "y"))
    assert check([replace(event, operation=None) for event in story.events]).is_clean


def test_histories_of_one_clock_are_merged_by_time() -> None:
    ticks = count()
    clock = [0, 0, 0, 5, 5, 9, 9, 9]
    one: list[Event] = []
    two: list[Event] = []
    recorders = [Recorder.in_memory(lambda: clock[next(ticks)], kept.append) for kept in (one, two)]
    first = recorders[0].invoke("a", "send", [[P, None, "x"]])
    second = recorders[1].invoke("b", "send", [[P, None, "y"]])
    third = recorders[1].invoke("c", "poll")
    first.ok([[P, 1, "x"]])
    fourth = recorders[1].invoke("d", "send", [[P, None, "z"]])
    second.ok([[P, 2, "y"]])
    fourth.ok([[P, 0, "z"]])
    third.ok([[P, 0, "z"], [P, 1, "x"], [P, 2, "y"]])
    merged = list(merge_histories(one, two))
    assert [event.index for event in merged] == list(range(8))
    assert [(event.process, event.type) for event in merged][3:5] == [("d", "invoke"), ("a", "ok")]
    # At the same time neither was first: z may lie below x.
    assert check(merged).is_clean
