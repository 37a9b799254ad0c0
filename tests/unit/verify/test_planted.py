"""One small history per anomaly: it is found under its own kind, fails the run or not, and nothing else is found."""

from collections.abc import Callable

import pytest

from penstock.verify.findings import Kind
from penstock.verify.rules import Pipeline, Rules
from tests.unit.verify.story import P, Q, Story, polled, sent

Plant = Callable[[Story], Rules | None]
PLANTS: list[tuple[Kind, bool, Plant]] = []


def plants(kind: Kind, *, fails: bool = True) -> Callable[[Plant], Plant]:
    def enter(plant: Plant) -> Plant:
        PLANTS.append((kind, fails, plant))
        return plant

    return enter


@plants(Kind.LOST_WRITE)
def an_acknowledged_record_is_passed_by_all_readers(story: Story) -> None:
    story.send("a", (0, "x"), (1, "y"), (2, "z"))
    story.poll("r", (0, "x"), (2, "z"))


@plants(Kind.LOST_WRITE)
def a_transaction_vanishes_as_a_whole(story: Story) -> None:
    story.begin_txn("a", (P, "x"), (Q, "y")).ok(sent((P, 0, "x"), (Q, 0, "y")))
    story.send("a", (2, "z"))
    story.send("a", (2, "w"), to=Q)
    story.poll("r", (2, "z"))
    story.poll("r", (2, "w"), of=Q)


@plants(Kind.LOST_WRITE)
def the_acknowledged_part_of_a_send_that_timed_out_vanishes(story: Story) -> None:
    story.begin_send("a", "x", "y").info("timed out", [[P, 0, "x"], [P, None, "y"]])
    story.send("b", (1, "z"))
    story.poll("r", (1, "z"))


@plants(Kind.LOST_WRITE)
def a_record_is_passed_in_a_history_that_was_cut(story: Story) -> Rules:
    story.send("a", (0, "x"), (1, "y"), (2, "z"), (3, "w"))
    story.poll("r", (0, "x"), (2, "z"))
    return Rules(ends_with_full_read=False)


@plants(Kind.UNSEEN)
def the_last_record_is_read_by_nobody(story: Story) -> None:
    story.send("a", (0, "x"), (1, "y"))
    story.poll("r", (0, "x"))


@plants(Kind.UNSEEN)
def a_partition_is_read_by_nobody(story: Story) -> None:
    story.send("a", (0, "x"))


@plants(Kind.DUPLICATE)
def a_reader_sees_a_value_twice(story: Story) -> None:
    story.send("a", (0, "x"), (1, "y"))
    story.poll("r", (0, "x"), (1, "y"), (2, "x"))


@plants(Kind.DUPLICATE)
def a_value_is_read_elsewhere_than_acknowledged(story: Story) -> None:
    story.send("a", (0, "x"))
    story.poll("r", (1, "x"))


@plants(Kind.DUPLICATE)
def two_readers_see_a_value_at_different_offsets(story: Story) -> None:
    story.begin_send("a", "x").info("timed out")
    story.poll("r", (0, "x"))
    story.poll("s", (1, "x"))


@plants(Kind.INCONSISTENT_OFFSETS)
def two_readers_see_different_values_at_an_offset(story: Story) -> None:
    story.begin_send("a", "x").info("timed out")
    story.begin_send("b", "y").info("timed out")
    story.poll("r", (0, "x"))
    story.poll("s", (0, "y"))


@plants(Kind.INCONSISTENT_OFFSETS)
def an_offset_is_acknowledged_twice(story: Story) -> None:
    first, second = story.begin_send("a", "x"), story.begin_send("b", "y")
    first.ok([[P, 0, "x"]])
    second.ok([[P, 0, "y"]])
    story.poll("r", (0, "x"))
    story.poll("s", (0, "y"))


@plants(Kind.INCONSISTENT_OFFSETS)
def one_reader_sees_two_values_at_an_offset(story: Story) -> None:
    story.begin_send("a", "x").info("timed out")
    story.begin_send("b", "y").info("timed out")
    story.assign("r", [P, 0])
    story.poll("r", (0, "x"))
    story.assign("r", [P, 0])
    story.poll("r", (0, "y"))


@plants(Kind.PHANTOM_READ)
def a_value_comes_out_of_nowhere(story: Story) -> None:
    story.send("a", (0, "x"))
    story.poll("r", (0, "x"), (1, "?"))


@plants(Kind.FUTURE_READ)
def a_value_is_read_before_it_is_sent(story: Story) -> None:
    story.poll("r", (0, "x"))
    story.send("a", (0, "x"))


@plants(Kind.INT_NONMONOTONIC_SEND)
def the_records_of_one_send_change_places(story: Story) -> None:
    story.send("a", (1, "x"), (0, "y"))
    story.poll("r", (0, "y"), (1, "x"))


@plants(Kind.NONMONOTONIC_SEND)
def the_sends_of_a_process_change_places(story: Story) -> None:
    story.send("a", (1, "x"))
    story.send("a", (0, "y"))
    story.poll("r", (0, "y"), (1, "x"))


@plants(Kind.NONMONOTONIC_SEND)
def pipelined_sends_change_places(story: Story) -> None:
    first, second = story.begin_send("a", "x"), story.begin_send("a", "y")
    second.ok([[P, 0, "y"]])
    first.ok([[P, 1, "x"]])
    story.poll("r", (0, "y"), (1, "x"))


@plants(Kind.NONMONOTONIC_SEND)
def a_send_that_timed_out_lands_behind_its_successor(story: Story) -> None:
    story.begin_send("a", "x").info("timed out")
    story.send("a", (0, "y"))
    story.poll("r", (0, "y"), (1, "x"))


@plants(Kind.REALTIME_ORDER)
def a_later_send_of_another_process_lands_before(story: Story) -> None:
    story.send("a", (1, "x"))
    story.send("b", (0, "y"))
    story.poll("r", (0, "y"), (1, "x"))


@plants(Kind.REALTIME_ORDER)
def a_later_send_that_timed_out_lands_before(story: Story) -> None:
    story.send("a", (1, "x"))
    story.begin_send("b", "y").info("timed out")
    story.poll("r", (0, "y"), (1, "x"))


@plants(Kind.INT_NONMONOTONIC_POLL)
def a_poll_goes_back(story: Story) -> None:
    story.send("a", (0, "x"), (1, "y"))
    story.poll("r", (0, "x"), (1, "y"), (0, "x"))


@plants(Kind.INT_NONMONOTONIC_POLL)
def a_subscribed_poll_repeats_a_record(story: Story) -> None:
    story.send("a", (0, "x"))
    story.invoke("r", "subscribe", ["orders"]).ok(["orders"])
    story.poll("r", (0, "x"), (0, "x"))


@plants(Kind.NONMONOTONIC_POLL)
def the_next_poll_goes_back(story: Story) -> None:
    story.send("a", (0, "x"), (1, "y"))
    story.assign("r", P)
    story.poll("r", (0, "x"), (1, "y"))
    story.assign("r", P, Q)
    story.poll("r", (1, "y"))


@plants(Kind.NONMONOTONIC_POLL, fails=False)
def the_next_poll_of_a_subscribed_process_goes_back(story: Story) -> None:
    story.send("a", (0, "x"), (1, "y"))
    story.invoke("r", "subscribe", ["orders"]).ok(["orders"])
    story.poll("r", (0, "x"), (1, "y"))
    story.poll("r", (0, "x"))


@plants(Kind.INT_POLL_SKIP)
def a_poll_leaves_out_what_another_reads(story: Story) -> None:
    story.send("a", (0, "x"), (1, "y"), (2, "z"))
    story.poll("r", (0, "x"), (1, "y"), (2, "z"))
    story.poll("s", (0, "x"), (2, "z"))


@plants(Kind.POLL_SKIP)
def the_next_poll_leaves_something_out(story: Story) -> None:
    story.send("a", (0, "x"), (1, "y"), (2, "z"))
    story.poll("r", (0, "x"))
    story.poll("r", (2, "z"))
    story.poll("s", (0, "x"), (1, "y"), (2, "z"))


@plants(Kind.POLL_SKIP)
def a_reader_does_not_begin_where_it_was_told(story: Story) -> None:
    story.send("a", (0, "x"), (1, "y"))
    story.assign("r", [P, 0])
    story.poll("r", (1, "y"))
    story.poll("s", (0, "x"), (1, "y"))


@plants(Kind.POLL_SKIP, fails=False)
def the_next_poll_of_a_subscribed_process_leaves_something_out(story: Story) -> None:
    story.send("a", (0, "x"), (1, "y"), (2, "z"))
    story.invoke("r", "subscribe", ["orders"]).ok(["orders"])
    story.poll("r", (0, "x"))
    story.poll("r", (2, "z"))
    story.poll("s", (0, "x"), (1, "y"), (2, "z"))


@plants(Kind.LISTED_OFFSET_REGRESS)
def the_latest_offset_goes_back(story: Story) -> None:
    story.answer("c", "list_offsets", (P, "latest", 5))
    story.answer("d", "list_offsets", (P, "latest", 4))


@plants(Kind.LISTED_OFFSET_REGRESS)
def the_earliest_offset_goes_back(story: Story) -> None:
    story.answer("c", "list_offsets", (P, "earliest", 5))
    story.answer("c", "list_offsets", (P, "earliest", 0))


@plants(Kind.HIGH_WATERMARK_REGRESS)
def the_high_watermark_goes_back(story: Story) -> None:
    story.answer("c", "high_watermark", (P, 5), (Q, 3))
    story.answer("d", "high_watermark", (P, 4), (Q, 3))


@plants(Kind.OFFSET_COMMIT_REGRESS)
def a_committed_offset_is_forgotten(story: Story) -> None:
    story.commit("c", ("g", P, 5))
    story.answer("d", "fetch_committed", ("g", P, 4))


@plants(Kind.OFFSET_COMMIT_REGRESS)
def a_group_forgets_everything(story: Story) -> None:
    story.commit("c", ("g", P, 5, 1))
    story.answer("c", "fetch_committed", ("g", P, None))


@plants(Kind.OFFSET_COMMIT_REGRESS)
def a_commit_of_a_fenced_generation_comes_through(story: Story) -> None:
    story.invoke("c", "commit", [("g", P, 3, 1)]).info("timed out")
    story.commit("d", ("g", P, 5, 2))
    story.answer("d", "fetch_committed", ("g", P, 3))


@plants(Kind.STUCK_LSO)
def the_last_stable_offset_stays_behind(story: Story) -> Rules:
    story.answer("c", "high_watermark", (P, 5, 2))
    return Rules(settled_after_ns=0)


@plants(Kind.ABORTED_READ)
def a_value_of_an_aborted_transaction_is_read(story: Story) -> None:
    story.begin_txn("a", (P, "x")).fail("aborted")
    story.poll("r", (0, "x"))


@plants(Kind.ABORTED_READ)
def a_value_is_read_before_its_transaction_is_aborted(story: Story) -> None:
    open_transaction = story.begin_txn("a", (P, "x"), (Q, "y"))
    story.poll("r", (0, "x"))
    open_transaction.fail("aborted")


@plants(Kind.ABORTED_READ)
def a_failed_send_is_read(story: Story) -> None:
    story.begin_send("a", "x").fail("refused")
    story.poll("r", (0, "x"))


@plants(Kind.PRECOMMITTED_READ)
def a_transaction_polls_its_own_send(story: Story) -> None:
    story.begin_txn("a", (P, "x")).ok(sent((P, 0, "x")) + polled((P, 0, "x")))


@plants(Kind.TORN_TRANSACTION)
def half_of_a_transaction_is_missing(story: Story) -> None:
    story.begin_txn("a", (P, "x"), (Q, "y")).ok(sent((P, 0, "x"), (Q, 0, "y")))
    story.send("a", (2, "z"), to=Q)
    story.poll("r", (0, "x"))
    story.poll("r", (2, "z"), of=Q)


@plants(Kind.TORN_TRANSACTION)
def half_of_a_transaction_of_unknown_fate_is_missing(story: Story) -> None:
    story.begin_txn("a", (P, "x"), (Q, "y")).info("timed out")
    story.poll("r", (0, "x"))


@plants(Kind.TORN_TRANSACTION)
def a_delivered_half_of_a_transaction_of_unknown_fate_is_missing(story: Story) -> Rules:
    story.begin_txn("a", (P, "x"), (Q, "y")).info("timed out", sent((P, 0, "x"), (Q, 0, "y")))
    story.send("a", (2, "z"), to=Q)
    story.assign("r", [Q, 0])
    story.poll("r", (0, "x"))
    story.poll("r", (2, "z"), of=Q)
    return Rules(ends_with_full_read=False)


@plants(Kind.G1C)
def two_transactions_read_from_each_other(story: Story) -> None:
    one, two = story.begin_txn("a", (P, "x")), story.begin_txn("b", (Q, "y"))
    one.ok(sent((P, 0, "x")) + polled((Q, 0, "y")))
    two.ok(sent((Q, 0, "y")) + polled((P, 0, "x")))


@plants(Kind.G1C)
def three_transactions_read_in_a_circle(story: Story) -> None:
    values = ["x", "y", "z"]
    open_transactions = [story.begin_txn(f"t{n}", (f"orders-{n}", value)) for n, value in enumerate(values)]
    for n, operation in enumerate(open_transactions):
        before = (n + 1) % 3
        operation.ok(sent((f"orders-{n}", 0, values[n])) + polled((f"orders-{before}", 0, values[before])))


@plants(Kind.G1C_REALTIME)
def information_travels_back_in_time_by_a_detour(story: Story) -> None:
    reader = story.begin_txn("c", ("orders-2", "z"))
    detour = story.begin_txn("b", (Q, "y"))
    reader.ok(sent(("orders-2", 0, "z")) + polled((Q, 0, "y")))
    story.begin_txn("a", (P, "x")).ok(sent((P, 0, "x")))
    detour.ok(sent((Q, 0, "y")) + polled((P, 0, "x")))
    story.poll("r", (0, "z"), of="orders-2")


@plants(Kind.G0, fails=False)
def transactions_write_before_each_other(story: Story) -> Rules:
    one, two = story.begin_txn("a", (P, "x"), (Q, "w")), story.begin_txn("b", (P, "y"), (Q, "z"))
    one.ok(sent((P, 0, "x"), (Q, 1, "w")))
    two.ok(sent((P, 1, "y"), (Q, 0, "z")))
    story.poll("r", (0, "x"), (1, "y"))
    story.poll("r", (0, "z"), (1, "w"), of=Q)
    return Rules(has_write_order=True)


@plants(Kind.G1C_WITH_WRITES, fails=False)
def a_transaction_reads_from_one_that_wrote_behind_it(story: Story) -> Rules:
    one, two = story.begin_txn("a", (P, "x")), story.begin_txn("b", (P, "y"), (Q, "z"))
    two.ok(sent((P, 1, "y"), (Q, 0, "z")))
    one.ok(sent((P, 0, "x")) + polled((Q, 0, "z")))
    story.poll("r", (0, "x"), (1, "y"))
    return Rules(has_write_order=True)


PIPELINE = Rules(pipeline=Pipeline(frozenset({P}), frozenset({Q})))


@plants(Kind.PIPELINE_NOT_ONCE)
def an_input_leads_to_two_outputs(story: Story) -> Rules:
    story.send("a", (0, "x"))
    story.begin_txn("t", (Q, "x/1")).ok(polled((P, 0, "x")) + sent((Q, 0, "x/1")))
    story.invoke("t", "crash").ok()
    story.begin_txn("t", (Q, "x/2")).ok(polled((P, 0, "x")) + sent((Q, 2, "x/2")))
    story.poll("r", (0, "x/1"), (2, "x/2"), of=Q)
    return PIPELINE


@plants(Kind.PIPELINE_NOT_ONCE)
def an_input_leads_to_nothing(story: Story) -> Rules:
    story.send("a", (0, "x"), (1, "y"))
    story.begin_txn("t", (Q, "x/1")).ok(polled((P, 0, "x"), (P, 1, "y")) + sent((Q, 0, "x/1")))
    story.poll("r", (0, "x/1"), of=Q)
    return PIPELINE


@plants(Kind.PIPELINE_NOT_ONCE)
def an_output_has_no_input(story: Story) -> Rules:
    story.send("a", (0, "x"))
    story.begin_txn("t", (Q, "x/1"), (Q, "y/1")).ok(polled((P, 0, "x")) + sent((Q, 0, "x/1"), (Q, 1, "y/1")))
    story.poll("r", (0, "x/1"), (1, "y/1"), of=Q)
    return PIPELINE


@pytest.mark.parametrize(("kind", "fails", "plant"), PLANTS, ids=[plant.__name__ for _, _, plant in PLANTS])
def test_a_planted_trouble_is_found_and_nothing_else(kind: Kind, fails: bool, plant: Plant) -> None:
    story = Story()
    rules = plant(story) or Rules()
    report = story.report(rules)
    assert set(report.anomalies) == ({kind} if fails else set()), report.text()
    assert set(report.notes) == (set() if fails else {kind}), report.text()
    assert report.is_clean is not fails
    assert all(finding.operations and finding.sentence.endswith(".") for finding in report.findings)


def test_every_kind_is_planted() -> None:
    """Replicas have no history: their planted anomalies are in test_replicas."""
    assert {kind for kind, _, _ in PLANTS} == set(Kind) - {Kind.REPLICA_DIVERGENCE}
