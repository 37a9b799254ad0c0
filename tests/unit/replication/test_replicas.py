"""The replicas of a broker: from the metadata image to fetches, truncations and ISR proposals."""

from typing import Any

import pytest

from penstock.log import truncation
from penstock.metadata.cluster_commands import AlteredPartition, AlteredPartitions
from penstock.metadata.draft import applied
from penstock.metadata.image import Image, Partition
from penstock.metadata.records import ConfigRecord, RemoveTopicRecord
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.errors import CorruptBatch, ErrorCode
from penstock.model.report import Report
from penstock.replication.effects import (
    Committed,
    CutLog,
    DropLog,
    Effect,
    Followed,
    Led,
    OpenLog,
    RestartLog,
    SendChange,
    SendFetch,
    StartReached,
    SyncLog,
    TrimLog,
)
from penstock.replication.events import (
    ChangeAnswered,
    ChangeLost,
    Event,
    FetchAnswered,
    FetchLost,
    ImageLearned,
    LogCut,
    LogFailed,
    LogOpened,
    LogsSynced,
    LogTrimmed,
    TimePassed,
)
from penstock.replication.follower import Following
from penstock.replication.ports import ReplicaLog
from penstock.replication.replicas import Replicas
from penstock.replication.settings import FIRST_REST_MS, TRIM_WAIT_MS
from penstock.replication.source_session import NAMED_MAX
from penstock.wire.messages.fetch import FetchResponse
from tests.simulation.log.histories import drive
from tests.simulation.replication_core.disk import ModelLog
from tests.unit.log.place import Place, a_batch
from tests.unit.replication.builders import (
    TOPIC,
    TOPIC_ID,
    Asked,
    a_log,
    an_answer,
    an_image,
    changed,
    fenced,
    found,
    key,
    named,
    partition,
    the_fetch,
)

WALL_MS = 1_700_000_000_000
SETTINGS = {
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "5000",
    "reassignment.replicas.per.broker.max": "1",
    "reassignment.bytes.per.second.max": "1000",
}
"""Settings of broker 1, the default of the tests."""


class ReplicasDriver:
    """Drives a broker's replicas on logs in memory: opens logs and keeps time."""

    def __init__(self, broker_id: int = 1, **logs: ModelLog) -> None:
        self.replicas = Replicas(broker_id, 10 * broker_id, BrokerSettings(SETTINGS), now=0)
        self.logs: dict[Any, Any] = {key(int(name[3:])): log for name, log in logs.items()}
        self.now = 0
        self.image = Image()
        self.reports: list[str] = []
        """Names of reported events."""

    def step(self, event: Event) -> list[Effect]:
        effects = self.replicas.step(event, self.now)
        for effect in list(effects):
            if isinstance(effect, OpenLog):
                log = self.logs.setdefault(effect.key, a_log())
                effects += self.replicas.step(LogOpened(effect.key, log), self.now)
        self.reports += [effect.kind.name for effect in effects if isinstance(effect, Report)]
        return [effect for effect in effects if not isinstance(effect, Report)]

    def learn(self, image: Image) -> list[Effect]:
        self.image = image
        return self.step(ImageLearned(image))

    def lead(self, *isr: int, in_sync_min: int = 1, **options: Any) -> list[Effect]:
        return self.learn(an_image({0: partition(*isr, **options)}, in_sync_min=in_sync_min))

    def answer(self, fetch: SendFetch, response: FetchResponse) -> list[Effect]:
        return self.step(FetchAnswered(fetch.source, fetch.number, response, WALL_MS))

    def wait(self, until: int) -> list[Effect]:
        self.now = until
        return self.step(TimePassed())

    def fetched_by(self, follower_id: int, asked: Asked) -> list[Effect]:
        return self.replicas.on_fetch(follower_id, 10 * follower_id, [(key(), asked)], self.now).effects


def the_change(effects: list[Effect]) -> SendChange:
    changes = [effect for effect in effects if isinstance(effect, SendChange)]
    assert len(changes) == 1, effects
    return changes[0]


def kinds(effects: list[Effect]) -> list[type]:
    return [type(effect) for effect in effects]


# --- roles ------------------------------------------------------------------------------------------------------------


def test_a_partition_is_led_where_the_image_says_so() -> None:
    driver = ReplicasDriver(log0=a_log(0, 0))
    effects = driver.lead(1, 2, 3, epoch=4)
    assert Led(key(), 4, 2) in effects
    assert driver.logs[key()].epochs.latest == 4  # recorded before any response in that epoch


def test_elsewhere_it_is_followed_and_then_led() -> None:
    driver = ReplicasDriver(broker_id=2)
    effects = driver.lead(1, 2, 3)
    assert Followed(key(), 1, 0) in effects
    assert the_fetch(effects).source == 1
    effects = driver.learn(changed(driver.image, leader=2, isr=(2, 3)))
    assert Led(key(), 1, 0) in effects
    assert not any(key() in fetcher for fetcher in driver.replicas.fetchers.values())


def test_who_led_without_a_record_takes_those_of_earlier_epochs() -> None:
    driver = ReplicasDriver(log0=a_log(0, 0))
    driver.lead(1, 2, 3, epoch=1)
    fetch = the_fetch(driver.learn(changed(driver.image, leader=2)))
    driver.answer(fetch, an_answer(found(log=a_log(0, 0, 0, 2), offset=2, high_watermark=3)))
    log = driver.logs[key()]
    assert [tuple(each) for each in log.epochs] == [(0, 0), (2, 3)]


def test_an_image_of_before_its_life_says_nothing() -> None:
    """An older image may name this broker as leader; but it has restarted, and may have lost records."""
    replicas = Replicas(1, 11, BrokerSettings(SETTINGS), now=0)
    assert replicas.step(ImageLearned(an_image({0: partition(1, 2)})), 0) == []
    assert not replicas.partitions


def test_without_a_leader_nothing_is_fetched() -> None:
    driver = ReplicasDriver(broker_id=2)
    fetch = the_fetch(driver.lead(1, 2))
    effects = driver.learn(changed(driver.image, leader=-1, isr=()))
    assert Followed(key(), -1, 1) in effects
    assert named(the_fetch(driver.answer(fetch, an_answer()))) == {}


def test_a_replica_that_goes_elsewhere_is_dropped() -> None:
    driver = ReplicasDriver(broker_id=2)
    driver.lead(1, 2)
    assert DropLog(key()) in driver.learn(changed(driver.image, replicas=(1, 3), isr=(1,)))
    assert not driver.replicas.partitions


def test_a_deleted_topic_is_dropped() -> None:
    driver = ReplicasDriver()
    driver.lead(1, 2)
    assert DropLog(key()) in driver.learn(applied(driver.image, [RemoveTopicRecord(topic_id=TOPIC_ID)]))


def test_a_log_that_fails_is_neither_led_nor_followed() -> None:
    driver = ReplicasDriver()
    driver.lead(1, 2)
    assert driver.step(LogFailed(key())) == [Followed(key(), -1, 0)]
    assert driver.reports == ["replica-leads", "replica-log-failed"]
    assert driver.replicas.leader(key()) is None
    driver.learn(changed(driver.image, isr=(1,)))
    assert driver.replicas.leader(key()) is None


# --- fetching ---------------------------------------------------------------------------------------------------------


def test_a_follower_asks_behind_the_epoch_of_its_last_record() -> None:
    driver = ReplicasDriver(broker_id=2, log0=a_log(0, 0, 3))
    fetch = the_fetch(driver.lead(1, 2, epoch=5))
    assert named(fetch) == {0: (3, 3, 5)}
    state = fetch.request.replica_state
    assert (state.replica_id, state.replica_epoch) == (2, 20)


def test_records_are_written_and_the_next_fetch_acknowledges_them() -> None:
    driver = ReplicasDriver(broker_id=2)
    fetch = the_fetch(driver.lead(1, 2))
    effects = driver.answer(fetch, an_answer(found(log=a_log(0, 0), high_watermark=1)))
    assert Committed(key()) in effects
    assert named(the_fetch(effects)) == {0: (2, 0, 0)}
    assert driver.logs[key()].high_watermark == 1


def test_what_is_to_be_synced_is_acknowledged_only_then() -> None:
    driver = ReplicasDriver(broker_id=2, log0=a_log(waits_for_sync=True))
    fetch = the_fetch(driver.lead(1, 2))
    effects = driver.answer(fetch, an_answer(found(log=a_log(0, 0))))
    assert kinds(effects) == [SyncLog]
    log = driver.logs[key()]
    log.synced_end = 1
    assert driver.step(LogsSynced([key()])) == []
    log.synced_end = 2
    assert named(the_fetch(driver.step(LogsSynced([key()])))) == {0: (2, 0, 0)}


def test_a_leader_of_before_first_syncs_what_it_wrote() -> None:
    log = a_log(0, 0, waits_for_sync=True)
    log.synced_end = 1
    assert SyncLog(key()) in ReplicasDriver(broker_id=2, log0=log).lead(1, 2)


def test_where_the_logs_part_this_one_is_cut() -> None:
    driver = ReplicasDriver(broker_id=2, log0=a_log(0, 1, 1))
    fetch = the_fetch(driver.lead(1, 2, epoch=2))
    effects = driver.answer(fetch, an_answer(found(diverging=(0, 5), high_watermark=5)))
    assert CutLog(key(), 1, lost=0) in effects
    assert driver.logs[key()].high_watermark == 0  # R05
    again = the_fetch(effects)
    assert list(again.request.forgotten_topics_data[0].partitions) == [0]
    driver.logs[key()].cut(1)
    driver.answer(again, an_answer(session_id=0))
    assert named(the_fetch(driver.step(LogCut(key())))) == {0: (1, 0, 2)}


def test_a_cut_of_what_was_committed_is_told() -> None:
    log = a_log(0, 1)
    log.high_watermark = 2
    driver = ReplicasDriver(broker_id=2, log0=log)
    fetch = the_fetch(driver.lead(1, 2, epoch=2))
    assert CutLog(key(), 1, lost=1) in driver.answer(fetch, an_answer(found(diverging=(0, 5))))


def test_a_log_is_led_only_when_it_has_been_cut() -> None:
    driver = ReplicasDriver(broker_id=2, log0=a_log(0, 1, 1))
    fetch = the_fetch(driver.lead(1, 2, epoch=2))
    driver.answer(fetch, an_answer(found(diverging=(0, 1))))
    assert not any(isinstance(each, Led) for each in driver.learn(changed(driver.image, leader=2, isr=(2,))))
    driver.logs[key()].cut(1)
    assert Led(key(), 3, 1) in driver.step(LogCut(key()))


def test_a_follower_behind_its_leaders_start_begins_anew_there() -> None:
    driver = ReplicasDriver(broker_id=2, log0=a_log(0))
    fetch = the_fetch(driver.lead(1, 2))
    response = an_answer(found(error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=7))
    assert RestartLog(key(), 7) in driver.answer(fetch, response)


def test_what_the_leader_has_deleted_may_go() -> None:
    driver = ReplicasDriver(broker_id=2, log0=a_log(0, 0))
    fetch = the_fetch(driver.lead(1, 2))
    assert TrimLog(key(), 1) in driver.answer(fetch, an_answer(found(high_watermark=2, log_start=1)))


def test_a_new_log_start_is_reported_once_it_is_durable() -> None:
    driver = ReplicasDriver(broker_id=2, log0=a_log(0, 0))
    fetch = the_fetch(driver.lead(1, 2))
    effects = driver.answer(fetch, an_answer(found(high_watermark=2, log_start=1)))
    fetch = the_fetch(effects)
    assert fetch.request.max_wait_ms == TRIM_WAIT_MS, "the leader may wait for it"
    fetch = the_fetch(driver.answer(fetch, an_answer()))
    assert not fetch.request.topics
    driver.logs[key()].trim(1)
    assert driver.step(LogTrimmed(key())) == []
    fetch = the_fetch(driver.answer(fetch, an_answer()))
    assert [each.log_start_offset for each in fetch.request.topics[0].partitions] == [1]
    assert fetch.request.max_wait_ms > TRIM_WAIT_MS


def test_a_leader_that_deletes_more_meanwhile_is_followed() -> None:
    driver = ReplicasDriver(broker_id=2, log0=a_log(0, 0))
    fetch = the_fetch(driver.lead(1, 2))
    effects = driver.answer(fetch, an_answer(found(high_watermark=2, log_start=1)))
    effects = driver.answer(the_fetch(effects), an_answer(found(high_watermark=2, log_start=2)))
    assert TrimLog not in kinds(effects), "one at a time"
    driver.logs[key()].trim(1)
    assert driver.step(LogTrimmed(key())) == [TrimLog(key(), 2)]


def test_a_deletion_waits_for_followers_and_no_longer_for_those_that_are_fenced() -> None:
    log = a_log(0, 0)
    driver = ReplicasDriver(log0=log)
    image = an_image({0: partition(1, 2)})
    driver.learn(image)
    log.high_watermark = 2
    log.trim(1)
    assert driver.replicas.await_start(key(), 0) == []
    assert StartReached not in kinds(driver.replicas.on_fetch(2, 20, [(key(), Asked(2, 0, log_start=1))], 0).effects)
    assert driver.learn(fenced(image, 3)) == [StartReached(key(), 1)]
    driver.replicas.forget_start(key())
    assert driver.replicas.on_fetch(2, 20, [(key(), Asked(2, 0, log_start=2))], 0).effects == []
    assert driver.replicas.await_start(key(), 0) == [StartReached(key(), 1)]


def test_a_refused_partition_rests_and_holds_up_nobody() -> None:
    driver = ReplicasDriver(broker_id=2)
    parts = {0: partition(1, 2), 1: partition(1, 2)}
    driver.learn(an_image(parts))
    fetch = the_fetch(driver.answer(SendFetch(1, 1, None), an_answer(found(0), found(1))))  # type: ignore[arg-type]
    response = an_answer(found(0, error=ErrorCode.UNKNOWN_LEADER_EPOCH), found(1, log=a_log(0)))
    fetch = the_fetch(driver.answer(fetch, response))
    assert named(fetch) == {1: (1, 0, 0)}
    assert driver.replicas.wake_at <= 200
    driver.wait(200)
    assert named(the_fetch(driver.answer(fetch, an_answer()))) == {0: (0, -1, 0)}


def test_what_was_refused_is_named_again_also_if_its_rest_is_over_before_the_next_request() -> None:
    """Otherwise a leader that did not know of its election would never learn the follower's offset."""
    driver = ReplicasDriver(broker_id=2, log1=a_log(waits_for_sync=True))
    driver.learn(an_image({0: partition(1, 2), 1: partition(1, 2)}))
    fetch = the_fetch(driver.answer(SendFetch(1, 1, None), an_answer(found(0), found(1))))  # type: ignore[arg-type]
    response = an_answer(found(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER), found(1, log=a_log(0)))
    assert kinds(driver.answer(fetch, response)) == [SyncLog]
    driver.wait(200)
    driver.logs[key(1)].synced_end = 1
    assert named(the_fetch(driver.step(LogsSynced([key(1)])))) == {0: (0, -1, 0), 1: (1, 0, 0)}


def test_who_is_refused_again_and_again_rests_longer_and_longer() -> None:
    """At first the leader may only lag behind the metadata; and an ISR member that backs off delays commits."""
    driver = ReplicasDriver(broker_id=2)
    fetch, rests, now = the_fetch(driver.lead(1, 2)), [], 0
    for _ in range(6):
        gone = driver.answer(fetch, an_answer(found(error=ErrorCode.UNKNOWN_LEADER_EPOCH)))
        driver.answer(the_fetch(gone), an_answer(session_id=0))
        rests.append(driver.replicas.wake_at - now)
        now = driver.replicas.wake_at
        fetch = the_fetch(driver.wait(now))
    assert rests == [20, 40, 80, 160, 200, 200]
    fetch = the_fetch(driver.answer(fetch, an_answer(found(log=a_log(0)))))
    gone = driver.answer(fetch, an_answer(found(error=ErrorCode.UNKNOWN_LEADER_EPOCH)))
    driver.answer(the_fetch(gone), an_answer(session_id=0))
    assert driver.replicas.wake_at - now == FIRST_REST_MS


def test_damaged_records_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_arguments: Any, **_options: Any) -> int:
        raise CorruptBatch("planted")

    driver = ReplicasDriver(broker_id=2)
    fetch = the_fetch(driver.lead(1, 2))
    with monkeypatch.context() as patch:
        patch.setattr(ModelLog, "append_replicated", refuses)
        gone = the_fetch(driver.answer(fetch, an_answer(found(log=a_log(0)))))
    driver.answer(gone, an_answer(session_id=0))
    assert named(the_fetch(driver.wait(200))) == {0: (0, -1, 0)}


def test_late_answers_and_answers_of_a_former_epoch_are_not_taken() -> None:
    driver = ReplicasDriver(broker_id=2)
    first = the_fetch(driver.lead(1, 2))
    driver.step(FetchLost(1, first.number))
    second = the_fetch(driver.wait(200))
    assert driver.answer(first, an_answer(found(log=a_log(0)))) == []
    driver.learn(changed(driver.image, replicas=(1, 2), isr=(1, 2), leader=1))
    driver.answer(second, an_answer(found(log=a_log(0, 0))))
    assert driver.logs[key()].written_end == 0


def test_a_source_that_does_not_answer_is_asked_again() -> None:
    driver = ReplicasDriver(broker_id=2)
    driver.lead(1, 2)
    assert driver.replicas.wake_at == 5_000
    assert driver.wait(5_000) == []
    assert driver.replicas.wake_at == 5_000 + FIRST_REST_MS
    again = the_fetch(driver.wait(driver.replicas.wake_at))
    assert (again.request.session_epoch, named(again)) == (0, {0: (0, -1, 0)})


def test_a_source_that_has_trouble_is_left_alone_for_a_while() -> None:
    driver = ReplicasDriver(broker_id=2)
    fetch = the_fetch(driver.lead(1, 2))
    assert driver.answer(fetch, an_answer(error=ErrorCode.BROKER_NOT_AVAILABLE)) == []
    assert driver.replicas.wake_at == 200
    the_fetch(driver.wait(200))


# --- leading ----------------------------------------------------------------------------------------------------------


def test_a_follower_that_has_caught_up_is_proposed_until_the_metadata_log_has_it() -> None:
    driver = ReplicasDriver(log0=a_log(0))
    driver.lead(1)
    change = the_change(driver.fetched_by(2, Asked(1, 0)))
    (wanted,) = change.command.partitions
    assert wanted.isr == ((1, 10), (2, 20))
    done = AlteredPartitions((AlteredPartition(TOPIC_ID, 0, isr=(1, 2), partition_epoch=1),))
    assert driver.step(ChangeAnswered(change.number, done)) == []
    leader = driver.replicas.leader(key())
    assert leader is not None
    assert list(leader.isr) == [1]  # the response changes nothing; the metadata log does
    again = the_change(driver.wait(1_000))
    assert again.command == change.command
    driver.learn(changed(driver.image, isr=(1, 2)))
    assert list(leader.isr) == [1, 2]
    assert driver.step(ChangeAnswered(again.number, done)) == []
    assert driver.wait(9_000) == []


def test_an_unanswered_proposal_is_repeated_as_it_was() -> None:
    driver = ReplicasDriver(log0=a_log(0))
    driver.lead(1)
    change = the_change(driver.fetched_by(2, Asked(1, 0)))
    driver.step(ChangeLost(change.number))
    driver.learn(fenced(driver.image, 2))
    assert the_change(driver.wait(200)).command == change.command


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID])
def test_a_refusal_may_be_that_of_a_former_controller(code: ErrorCode) -> None:
    """KAFKA-14154: only the metadata log ends a proposal."""
    driver = ReplicasDriver(log0=a_log(0))
    driver.lead(1)
    change = the_change(driver.fetched_by(2, Asked(1, 0)))
    refused = AlteredPartitions((AlteredPartition(TOPIC_ID, 0, code),))
    driver.step(ChangeAnswered(change.number, refused))
    leader = driver.replicas.leader(key())
    assert leader is not None
    assert leader.maximal_isr == (1, 2)
    assert the_change(driver.wait(1_000)).command == change.command


def test_one_that_the_controller_finds_ineligible_is_thought_over() -> None:
    driver = ReplicasDriver(log0=a_log(0))
    driver.lead(1)
    change = the_change(driver.fetched_by(2, Asked(1, 0)))
    refused = AlteredPartitions((AlteredPartition(TOPIC_ID, 0, ErrorCode.INELIGIBLE_REPLICA),))
    assert driver.step(ChangeAnswered(change.number, refused)) == []
    leader = driver.replicas.leader(key())
    assert leader is not None
    assert leader.maximal_isr == (1,)
    the_change(driver.wait(1_000))


def test_one_that_is_no_longer_fenced_joins_without_another_fetch() -> None:
    driver = ReplicasDriver(log0=a_log(0))
    driver.learn(fenced(an_image({0: partition(1)}), 2))
    assert not [each for each in driver.fetched_by(2, Asked(1, 0)) if isinstance(each, SendChange)]
    the_change(driver.learn(fenced(driver.image, 2, is_on=False)))


def test_the_high_watermark_is_told_when_it_moves() -> None:
    driver = ReplicasDriver()
    driver.lead(1, 2)
    offset = driver.logs[key()].append(0, 5)
    assert driver.replicas.appended(key(), offset, driver.now) == []
    assert driver.fetched_by(2, Asked(1, 0)) == [Committed(key())]


def test_late_followers_are_found_in_time() -> None:
    driver = ReplicasDriver()
    driver.lead(1, 2)
    offset = driver.logs[key()].append(0, 5)
    driver.replicas.appended(key(), offset, driver.now)
    sent: list[Effect] = []
    while not sent and driver.now < 3_000:
        sent = [each for each in driver.wait(driver.replicas.wake_at) if isinstance(each, SendChange)]
    assert 1_000 < driver.now <= 1_500 + 1
    assert the_change(sent).command.partitions[0].isr == ((1, 10),)


def test_when_nobody_is_behind_nobody_is_looked_for() -> None:
    driver = ReplicasDriver()
    driver.lead(1, 2)
    driver.fetched_by(2, Asked(0))
    driver.wait(driver.replicas.wake_at)
    assert driver.replicas.wake_at > 10**9


def test_a_changed_minimum_counts_at_once() -> None:
    driver = ReplicasDriver(log0=a_log(0))
    driver.lead(1, in_sync_min=2)
    assert driver.logs[key()].high_watermark == 0
    lower = ConfigRecord(resource_type=2, resource_name=TOPIC, name="min.insync.replicas", value="1")
    assert Committed(key()) in driver.learn(applied(driver.image, [lower]))


def test_a_lower_minimum_is_nothing_to_one_that_leads_no_longer() -> None:
    """The broker learns at once that another broker leads and that one in-sync replica would have been enough."""
    driver = ReplicasDriver(log0=a_log(0))
    driver.lead(1, in_sync_min=2)
    lower = ConfigRecord(resource_type=2, resource_name=TOPIC, name="min.insync.replicas", value="1")
    effects = driver.learn(applied(changed(driver.image, leader=2, isr=(2,)), [lower]))
    assert Followed(key(), 2, 1) in effects
    assert driver.logs[key()].high_watermark == 0


def test_settings_of_all_brokers_count_at_once() -> None:
    driver = ReplicasDriver()
    driver.lead(1, 2)
    sooner = ConfigRecord(resource_type=4, resource_name="", name="replica.lag.time.max.ms", value="100")
    driver.learn(applied(driver.image, [sooner]))
    offset = driver.logs[key()].append(0, 5)
    driver.replicas.appended(key(), offset, driver.now)
    while driver.now < 1_000 and not driver.replicas.leader(key()).proposal:  # type: ignore[union-attr]
        driver.wait(driver.replicas.wake_at)
    assert driver.now < 600


# --- reassignment -----------------------------------------------------------------------------------------------------


def arriving(number: int) -> Partition:
    del number
    return partition(1, replicas=(2, 1))._replace(adding_replicas=(2,))


def test_replicas_that_move_here_come_one_after_the_other() -> None:
    driver = ReplicasDriver(broker_id=2)
    fetch = the_fetch(driver.learn(an_image({0: arriving(0), 1: arriving(1)})))
    assert named(fetch) == {0: (0, -1, 0)}
    fetch = the_fetch(driver.answer(fetch, an_answer(found(0))))
    there = changed(driver.image, isr=(1, 2), adding_replicas=())
    assert not [each for each in driver.learn(there) if isinstance(each, SendFetch)]
    assert named(the_fetch(driver.answer(fetch, an_answer()))) == {1: (0, -1, 0)}


def test_they_come_only_so_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = ReplicasDriver(broker_id=2)
    fetch = the_fetch(driver.learn(an_image({0: arriving(0)})))
    source = a_log(*[0] * 50)
    monkeypatch.setattr("tests.simulation.replication_core.disk.Records.__len__", lambda self: 50 * len(self.entries))
    gone = the_fetch(driver.answer(fetch, an_answer(found(log=source))))
    assert list(gone.request.forgotten_topics_data[0].partitions) == [0]
    driver.answer(gone, an_answer(session_id=0))
    assert driver.replicas.wake_at == 1_501  # 2,500 bytes at 1,000 a second, with one second's allowance
    assert named(the_fetch(driver.wait(1_501))) == {0: (50, 0, 0)}


# --- many new partitions ----------------------------------------------------------------------------------------------


def test_of_many_new_partitions_some_are_placed_in_a_step() -> None:
    replicas = Replicas(1, 10, BrokerSettings(SETTINGS), now=0, placed_at_once=2)
    here, elsewhere = partition(1, 2), partition(2, 3, replicas=(2, 3))
    replicas.step(ImageLearned(an_image({0: here, 1: here, 2: here, 3: here, 4: here})), 0)
    assert sorted(replicas.partitions) == [key(0), key(1)]
    assert replicas.wake_at == 1
    # Partitions that changed while waiting are placed once, in their current state.
    changed_epoch = partition(1, 2, epoch=7)
    replicas.step(ImageLearned(an_image({0: here, 1: here, 2: changed_epoch, 3: elsewhere, 4: changed_epoch})), 1)
    assert sorted(replicas.partitions) == [key(0), key(1), key(2)]
    opened = [effect for effect in replicas.step(TimePassed(), 2) if isinstance(effect, OpenLog)]
    assert [effect.key for effect in opened] == [key(4)]
    assert [replicas.partitions[key(number)].partition.leader_epoch for number in (2, 4)] == [7, 7]
    assert not [effect for effect in replicas.step(TimePassed(), 3) if isinstance(effect, OpenLog)]
    assert key(3) not in replicas.partitions
    assert replicas.wake_at > 3


# --- ten thousand partitions ------------------------------------------------------------------------------------------


def test_a_partition_costs_nothing_while_nothing_happens_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 10_000
    looks = 0
    wanted = Following.wanted

    def counted(self: Following, bytes_max: int) -> Any:
        nonlocal looks
        looks += 1
        return wanted(self, bytes_max)

    driver = ReplicasDriver(broker_id=2)
    fetch, rounds = the_fetch(driver.learn(an_image({number: partition(1, 2) for number in range(count)}))), 0
    while len(driver.replicas.partitions) < count:
        assert driver.replicas.wake_at == driver.now + 1
        driver.wait(driver.now + 1)
    while fetch.request.topics:
        assert len(named(fetch)) <= NAMED_MAX
        fetch = the_fetch(driver.answer(fetch, an_answer(*map(found, named(fetch)))))
        rounds += 1
    assert count / NAMED_MAX <= rounds <= 15, "they are named in requests that are small for their source"
    monkeypatch.setattr(Following, "wanted", counted)
    for _ in range(10):
        fetch = the_fetch(driver.answer(fetch, an_answer()))
        assert not fetch.request.topics
    assert looks == 0
    fetch = the_fetch(driver.answer(fetch, an_answer(found(77, log=a_log(0)))))
    assert (named(fetch), looks) == ({77: (1, 0, 0)}, 1)


# --- on a real log ----------------------------------------------------------------------------------------------------


def batches_of(place: Place) -> memoryview:
    return memoryview(b"".join(place.stored()))


def test_a_follower_on_a_real_log_takes_over_from_its_leader_and_cuts_what_diverges() -> None:
    theirs, ours = Place(), Place()
    theirs.append(a_batch(2), epoch=0)
    ours.append(a_batch(2), epoch=0)
    ours.append(a_batch(1), epoch=1)
    theirs.append(a_batch(3), epoch=2)
    drive(ours.directory.commit())
    log: ReplicaLog = ours.log
    driver = ReplicasDriver(broker_id=2)
    driver.logs[key()] = log
    fetch = the_fetch(driver.lead(1, 2, epoch=2))
    assert named(fetch) == {0: (3, 1, 2)}
    effects = driver.answer(fetch, an_answer(found(diverging=(0, 2))))
    (cut,) = [each for each in effects if isinstance(each, CutLog)]
    drive(truncation.truncate(ours.log, ours.disk, ours.directory.ledger, cut.end_offset, now_ms=0))
    gone = the_fetch(effects)
    driver.answer(gone, an_answer(session_id=0))
    fetch = the_fetch(driver.step(LogCut(key())))
    assert named(fetch) == {0: (2, 0, 2)}
    missing = memoryview(theirs.stored()[1])
    response = an_answer(found(high_watermark=5))
    response.responses[0].partitions[0].records = missing
    assert SyncLog(key()) in driver.answer(fetch, response)
    drive(ours.directory.commit())
    assert named(the_fetch(driver.step(LogsSynced([key()])))) == {0: (5, 2, 2)}
    assert ours.stored() == theirs.stored()
    assert ours.log.high_watermark == 5


def test_an_answer_that_ends_inside_a_batch_is_taken_up_to_there() -> None:
    theirs, ours = Place(), Place()
    theirs.append(a_batch(2), epoch=0)
    theirs.append(a_batch(3), epoch=0)
    driver = ReplicasDriver(broker_id=2)
    driver.logs[key()] = ours.log
    fetch = the_fetch(driver.lead(1, 2))
    response = an_answer(found(high_watermark=5))
    response.responses[0].partitions[0].records = batches_of(theirs)[:-1]
    assert SyncLog(key()) in driver.answer(fetch, response)
    drive(ours.directory.commit())
    assert named(the_fetch(driver.step(LogsSynced([key()])))) == {0: (2, 0, 0)}
    assert ours.stored() == theirs.stored()[:1]
