"""Permitted behaviour that resembles an anomaly: each of these would be a false alarm."""

from collections.abc import Callable

import pytest

from penstock.verify.findings import Kind
from penstock.verify.rules import Rules
from tests.unit.verify.story import P, Q, Story, polled, sent

Tale = Callable[[Story], Rules | None]
TALES: list[Tale] = []


def tells(tale: Tale) -> Tale:
    TALES.append(tale)
    return tale


@tells
def markers_leave_gaps(story: Story) -> None:
    story.begin_txn("a", (P, "x")).ok(sent((P, 0, "x")))
    story.begin_txn("a", (P, "y")).ok(sent((P, 2, "y")))
    story.poll("r", (0, "x"), (2, "y"))


@tells
def an_aborted_transaction_is_skipped(story: Story) -> None:
    story.begin_txn("a", (P, "x")).fail("aborted", sent((P, 0, "x")))
    story.send("b", (2, "y"))
    story.assign("r", [P, 0])
    story.poll("r", (2, "y"))


@tells
def a_send_of_unknown_fate_never_lands(story: Story) -> None:
    story.begin_send("a", "x").info("timed out")
    story.begin_txn("b", (P, "y"), (Q, "z")).info("timed out", sent((P, 0, "y"), (Q, 0, "z")))
    story.begin_send("a", "w")


@tells
def a_send_lands_late_after_its_process_has_crashed(story: Story) -> None:
    story.begin_send("a", "x").info("timed out")
    story.invoke("a", "crash").ok()
    story.send("a", (0, "y"))
    story.poll("r", (0, "y"), (1, "x"))


@tells
def a_new_producer_id_overtakes_the_old_one(story: Story) -> None:
    story.invoke("a", "send", [[P, None, "x"]], pid=1, epoch=0).info("timed out")
    story.invoke("a", "send", [[P, None, "y"]], pid=2, epoch=0).ok([[P, 0, "y"]])
    story.poll("r", (0, "y"), (1, "x"))


@tells
def concurrent_sends_land_in_any_order(story: Story) -> None:
    first, second = story.begin_send("a", "x"), story.begin_send("b", "y")
    first.ok([[P, 1, "x"]])
    second.ok([[P, 0, "y"]])
    story.poll("r", (0, "y"), (1, "x"))


@tells
def a_refused_value_is_sent_again(story: Story) -> None:
    story.begin_send("a", "x").fail("refused")
    story.send("a", (0, "x"))
    story.poll("r", (0, "x"))


@tells
def a_value_is_read_before_its_send_is_acknowledged(story: Story) -> None:
    send = story.begin_send("a", "x")
    story.poll("r", (0, "x"))
    send.ok([[P, 0, "x"]])


@tells
def a_topic_was_filled_by_somebody_else(story: Story) -> None:
    story.poll("r", (5, "x"), (6, "y"))


@tells
def a_reader_is_sent_back(story: Story) -> None:
    story.send("a", (0, "x"), (1, "y"))
    story.assign("r", P)
    story.poll("r", (0, "x"), (1, "y"))
    story.assign("r", [P, 0])
    story.poll("r", (0, "x"), (1, "y"))
    story.assign("r", [P, None])
    story.poll("r", (1, "y"))
    story.assign("r", Q)
    story.assign("r", P)
    story.poll("r", (0, "x"))


@tells
def a_reader_crashes_and_begins_again(story: Story) -> None:
    story.send("a", (0, "x"), (1, "y"))
    story.poll("r", (0, "x"), (1, "y"))
    story.invoke("r", "crash").info("killed")
    story.poll("r", (0, "x"), (1, "y"))


@tells
def a_partition_goes_and_comes_back_during_polls(story: Story) -> None:
    story.send("a", (0, "x"), (1, "y"), (2, "z"))
    story.invoke("r", "subscribe", ["orders"]).ok(["orders"])
    story.invoke("r", "poll").ok([[P, 0, "x"]], rebalanced=[P])
    story.invoke("r", "poll").ok([[P, 2, "z"]])
    story.invoke("r", "poll").ok([[P, 0, "x"], [P, 2, "z"]], rebalanced=[P])
    story.poll("s", (0, "x"), (1, "y"), (2, "z"))


@tells
def a_poll_of_unknown_outcome_moves_the_reader(story: Story) -> None:
    story.send("a", (0, "x"), (1, "y"), (2, "z"))
    story.poll("r", (0, "x"))
    story.invoke("r", "poll").info("timed out")
    story.poll("r", (2, "z"))
    story.poll("s", (0, "x"), (1, "y"), (2, "z"))


@tells
def a_consumer_goes_back_when_its_transaction_is_aborted(story: Story) -> None:
    story.send("a", (0, "x"), (1, "y"))
    story.begin_txn("t", (Q, "z")).fail("aborted", polled((P, 0, "x"), (P, 1, "y")))
    story.begin_txn("t", (Q, "w")).ok(polled((P, 0, "x"), (P, 1, "y")) + sent((Q, 2, "w")))
    story.poll("r", (2, "w"), of=Q)


@tells
def offsets_are_asked_for_at_the_same_time(story: Story) -> None:
    first, second = story.invoke("c", "list_offsets"), story.invoke("d", "list_offsets")
    first.ok([(P, "latest", 5)])
    second.ok([(P, "latest", 4)])
    first, second = story.invoke("c", "high_watermark"), story.invoke("d", "high_watermark")
    first.ok([(P, 5)])
    second.ok([(P, 4)])


@tells
def the_offset_of_a_timestamp_goes_back(story: Story) -> None:
    story.answer("c", "list_offsets", (P, 1_700_000_000_000, 5))
    story.answer("c", "list_offsets", (P, 1_700_000_000_000, 4))


@tells
def an_open_transaction_holds_the_last_stable_offset(story: Story) -> Rules:
    story.answer("c", "high_watermark", (P, 5, 2))
    settled_after_ns = story.events[-1].time_ns + 1
    story.answer("c", "high_watermark", (P, 6, 6))
    return Rules(settled_after_ns=settled_after_ns)


@tells
def a_group_commits_backwards_on_purpose(story: Story) -> None:
    story.commit("c", ("g", P, 5))
    story.commit("c", ("g", P, 3))
    story.answer("c", "fetch_committed", ("g", P, 3))


@tells
def a_commit_is_under_way_while_it_is_asked_for(story: Story) -> None:
    story.commit("c", ("g", P, 5))
    question = story.invoke("d", "fetch_committed", [("g", P)])
    commit = story.invoke("c", "commit", [("g", P, 3)])
    question.ok([("g", P, 3)])
    commit.ok()
    unknown = story.invoke("c", "commit", [("g", P, 1)])
    unknown.info("timed out")
    story.answer("d", "fetch_committed", ("g", P, 1))


@tells
def two_commits_arrive_in_any_order(story: Story) -> None:
    one, two = story.invoke("c", "commit", [("g", P, 5)]), story.invoke("d", "commit", [("g", P, 3)])
    two.ok()
    one.ok()
    story.answer("d", "fetch_committed", ("g", P, 3))


@tells
def another_group_has_its_own_offsets(story: Story) -> None:
    story.commit("c", ("g", P, 5))
    story.answer("d", "fetch_committed", ("h", P, None))


@tells
def a_chain_of_transactions_hands_information_on(story: Story) -> None:
    story.begin_txn("a", (P, "x")).ok(sent((P, 0, "x")))
    story.begin_txn("b", (Q, "y")).ok(polled((P, 0, "x")) + sent((Q, 0, "y")))
    story.begin_txn("c").ok(polled((Q, 0, "y")))


@tells
def retention_and_compaction_remove_records(story: Story) -> Rules:
    story.send("a", (0, "x"), (1, "y"))
    story.send("a", (0, "z"), (1, "w"), to=Q)
    story.poll("r", (1, "y"))
    story.poll("r", (1, "w"), of=Q)
    story.send("a", (2, "v"), to=Q)
    return Rules(log_starts={P: 1}, compacted=frozenset({Q}))


@tells
def a_history_is_cut(story: Story) -> Rules:
    story.send("a", (0, "x"), (1, "y"))
    story.begin_txn("a", (P, "z"), (Q, "w")).ok(sent((P, 2, "z"), (Q, 0, "w")))
    story.assign("r", [P, 1])
    story.poll("r", (1, "y"), (2, "z"))
    return Rules(ends_with_full_read=False)


@pytest.mark.parametrize("tale", TALES, ids=lambda tale: tale.__name__)
def test_no_alarm(tale: Tale) -> None:
    story = Story()
    rules = tale(story) or Rules()
    report = story.report(rules)
    assert not report.findings, report.text()
    assert report.is_clean


def test_a_waived_kind_is_only_noted() -> None:
    story = Story()
    story.send("a", (0, "x"))
    report = story.report(Rules(waived=frozenset({Kind.UNSEEN})))
    assert report.is_clean
    assert report.notes == {Kind.UNSEEN: 1}
