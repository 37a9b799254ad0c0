"""What `consume` reports about brokers that fail, and when it gives up."""

import pytest

from penstock.cli.consume.outages import AGAIN_AFTER_MS, GONE_AFTER_MS, TOLD_AFTER_MS, Outages
from penstock.cli.errors import Failed
from penstock.client.consumer.fetcher import Trouble
from penstock.client.errors import ConnectionLost, Refused, Unreachable
from penstock.client.metadata import TopicPartition
from penstock.model.errors import ErrorCode

DEAD = Unreachable("no connection to b:9092: nothing listens there: is the broker running, and is the port right?")
LOST = ConnectionLost("the connection to b:9092 ended")
GONE = Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def outages(limit_ms: int | None = None) -> tuple[Outages, list[str]]:
    told: list[str] = []
    return Outages("t", "g", limit_ms, told.append), told


def test_an_outage_is_reported_once_and_its_end_too() -> None:
    seen, told = outages()
    for now_ms in range(1_000, 40_000, 10):
        seen.look(now_ms, [Trouble(T0, 1_000, LOST)])
    assert told == [
        "t[0] cannot be read since 2 s: the connection to b:9092 ended. Trying again until it succeeds; Ctrl-C ends."
    ]
    seen.look(41_000, [])
    assert told[1:] == ["t[0] can be read again, after 40 s."]
    seen.look(41_001, [])
    assert len(told) == 2


def test_a_short_outage_is_not_reported() -> None:
    seen, told = outages()
    seen.look(100, [Trouble(T0, 0, LOST)])
    seen.look(TOLD_AFTER_MS - 1, [Trouble(T0, 0, LOST)])
    seen.look(TOLD_AFTER_MS, [])
    assert told == []


def test_a_long_outage_is_reported_again_with_its_present_cause() -> None:
    seen, told = outages()
    seen.look(2_000, [Trouble(T0, 0, LOST)])
    seen.look(2_000 + AGAIN_AFTER_MS, [Trouble(T0, 0, DEAD)])
    assert "since 62 s: no connection to b:9092" in told[1]
    assert "is the port right? Trying again" in told[1]


def test_another_partition_is_reported_too() -> None:
    seen, told = outages()
    seen.look(2_000, [Trouble(T0, 0, LOST)])
    seen.look(4_000, [Trouble(T0, 0, LOST), Trouble(T1, 2_000, DEAD)])
    assert told[1].startswith("t[0], t[1] cannot be read since 4 s")
    seen.look(5_000, [Trouble(T1, 2_000, DEAD)])
    assert told[2] == "t[0] can be read again, after 5 s."


def test_many_partitions_are_counted() -> None:
    seen, told = outages()
    seen.look(2_000, [Trouble(TopicPartition("t", each), 0, LOST) for each in range(50)])
    assert told[0].startswith("t[0], t[1], t[2] and 47 more cannot be read")


def test_a_coordinator_is_reported_if_nothing_else_fails() -> None:
    seen, told = outages()
    seen.look(3_000, [Trouble(None, 0, DEAD)])
    assert told[0].startswith("the coordinator of group g cannot be reached since 3 s")
    seen.look(4_000, [])
    assert told[1] == "the coordinator of group g can be reached again, after 4 s."
    both, told = outages()
    both.look(3_000, [Trouble(T0, 0, LOST)])
    both.look(6_000, [Trouble(T0, 0, LOST), Trouble(None, 3_000, DEAD)])
    both.look(7_000, [Trouble(T0, 0, LOST)])
    assert len(told) == 1


def test_a_topic_that_is_gone_ends_reading() -> None:
    seen, _ = outages()
    troubles = [Trouble(T0, 0, GONE)]
    seen.look(60_000, [Trouble(T0, 0, DEAD)])
    seen.look(60_001, troubles)
    seen.look(60_000 + GONE_AFTER_MS, troubles)
    with pytest.raises(Failed, match=r"t\[0\] cannot be read any more: the brokers do not know it"):
        seen.look(60_001 + GONE_AFTER_MS, troubles)


def test_a_broker_that_learns_of_topics_late_ends_nothing() -> None:
    seen, _ = outages()
    for now_ms in range(0, 3 * GONE_AFTER_MS, GONE_AFTER_MS // 2):
        seen.look(now_ms, [Trouble(T0, 0, GONE if now_ms % GONE_AFTER_MS else LOST)])
        seen.look_at_topic(now_ms, is_known=bool(now_ms % GONE_AFTER_MS))
    seen.look_at_topic(100_000, is_known=False)
    with pytest.raises(Failed, match="t cannot be read any more"):
        seen.look_at_topic(100_000 + GONE_AFTER_MS, is_known=False)


def test_the_end_of_a_topic_is_waited_for_within_the_limit() -> None:
    seen, told = outages(30_000)
    seen.look(2_000, [Trouble(T0, 0, LOST)])
    assert told[0].endswith("Trying again for 30 s.")
    seen.look(29_999, [Trouble(T0, 0, LOST)])
    with pytest.raises(Failed, match=r"t could not be read to its end: t\[0\] cannot be read since 30 s: the conn"):
        seen.look(30_000, [Trouble(T0, 0, LOST)])
