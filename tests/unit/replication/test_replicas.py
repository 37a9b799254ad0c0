"""The replicas of a broker, from the metadata image to fetches, cuts and proposals."""

from typing import Any

import pytest

from penstock.log import truncation
from penstock.metadata.cluster_commands import AlteredPartition, AlteredPartitions
from penstock.metadata.image import Image, Partition
from penstock.metadata.records import ConfigRecord, RemoveTopicRecord
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.errors import CorruptBatch, ErrorCode
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
from tests.simulation.log_histories import drive
from tests.simulation.replication_disk import ModelLog
from tests.unit.log.place import Place, a_batch
from tests.unit.replication.stage import (
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
"""Of the broker with id 1, unless a test says otherwise."""


class Stage:
    """A broker's replicas on logs in memory, and what a driver does without thinking: opening logs, keeping time."""

    def __init__(self, broker_id: int = 1, **logs: ModelLog) -> None:
        self.replicas = Replicas(broker_id, 10 * broker_id, BrokerSettings(SETTINGS), now=0)
        self.logs: dict[Any, Any] = {key(int(name[3:])): log for name, log in logs.items()}
        self.now = 0
        self.image = Image()

    def step(self, event: Event) -> list[Effect]:
        effects = self.replicas.step(event, self.now)
        for effect in list(effects):
            if isinstance(effect, OpenLog):
                log = self.logs.setdefault(effect.key, a_log())
                effects += self.replicas.step(LogOpened(effect.key, log), self.now)
        return effects

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
    stage = Stage(log0=a_log(0, 0))
    effects = stage.lead(1, 2, 3, epoch=4)
    assert Led(key(), 4, 2) in effects
    assert stage.logs[key()].epochs.latest == 4  # noted before anything is answered in it


def test_elsewhere_it_is_followed_and_then_led() -> None:
    stage = Stage(broker_id=2)
    effects = stage.lead(1, 2, 3)
    assert Followed(key(), 1, 0) in effects
    assert the_fetch(effects).source == 1
    effects = stage.learn(changed(stage.image, leader=2, isr=(2, 3)))
    assert Led(key(), 1, 0) in effects
    assert not any(key() in fetcher for fetcher in stage.replicas.fetchers.values())


def test_who_led_without_a_record_takes_those_of_earlier_epochs() -> None:
    stage = Stage(log0=a_log(0, 0))
    stage.lead(1, 2, 3, epoch=1)
    fetch = the_fetch(stage.learn(changed(stage.image, leader=2)))
    stage.answer(fetch, an_answer(found(log=a_log(0, 0, 0, 2), offset=2, high_watermark=3)))
    log = stage.logs[key()]
    assert [tuple(each) for each in log.epochs] == [(0, 0), (2, 3)]


def test_an_image_of_before_its_life_says_nothing() -> None:
    """It may say that this broker leads; but it has died since, and may have lost what it led with."""
    replicas = Replicas(1, 11, BrokerSettings(SETTINGS), now=0)
    assert replicas.step(ImageLearned(an_image({0: partition(1, 2)})), 0) == []
    assert not replicas.partitions


def test_without_a_leader_nothing_is_fetched() -> None:
    stage = Stage(broker_id=2)
    fetch = the_fetch(stage.lead(1, 2))
    effects = stage.learn(changed(stage.image, leader=-1, isr=()))
    assert Followed(key(), -1, 1) in effects
    assert named(the_fetch(stage.answer(fetch, an_answer()))) == {}


def test_a_replica_that_goes_elsewhere_is_dropped() -> None:
    stage = Stage(broker_id=2)
    stage.lead(1, 2)
    assert DropLog(key()) in stage.learn(changed(stage.image, replicas=(1, 3), isr=(1,)))
    assert not stage.replicas.partitions


def test_a_deleted_topic_is_dropped() -> None:
    stage = Stage()
    stage.lead(1, 2)
    assert DropLog(key()) in stage.learn(stage.image.apply([RemoveTopicRecord(topic_id=TOPIC_ID)]))


def test_a_log_that_fails_is_neither_led_nor_followed() -> None:
    stage = Stage()
    stage.lead(1, 2)
    assert stage.step(LogFailed(key())) == [Followed(key(), -1, 0)]
    assert stage.replicas.leader(key()) is None
    stage.learn(changed(stage.image, isr=(1,)))
    assert stage.replicas.leader(key()) is None


# --- fetching ---------------------------------------------------------------------------------------------------------


def test_a_follower_asks_behind_the_epoch_of_its_last_record() -> None:
    stage = Stage(broker_id=2, log0=a_log(0, 0, 3))
    fetch = the_fetch(stage.lead(1, 2, epoch=5))
    assert named(fetch) == {0: (3, 3, 5)}
    state = fetch.request.replica_state
    assert (state.replica_id, state.replica_epoch) == (2, 20)


def test_records_are_written_and_the_next_fetch_acknowledges_them() -> None:
    stage = Stage(broker_id=2)
    fetch = the_fetch(stage.lead(1, 2))
    effects = stage.answer(fetch, an_answer(found(log=a_log(0, 0), high_watermark=1)))
    assert Committed(key()) in effects
    assert named(the_fetch(effects)) == {0: (2, 0, 0)}
    assert stage.logs[key()].high_watermark == 1


def test_what_is_to_be_synced_is_acknowledged_only_then() -> None:
    stage = Stage(broker_id=2, log0=a_log(waits_for_sync=True))
    fetch = the_fetch(stage.lead(1, 2))
    effects = stage.answer(fetch, an_answer(found(log=a_log(0, 0))))
    assert kinds(effects) == [SyncLog]
    log = stage.logs[key()]
    log.synced_end = 1
    assert stage.step(LogsSynced([key()])) == []
    log.synced_end = 2
    assert named(the_fetch(stage.step(LogsSynced([key()])))) == {0: (2, 0, 0)}


def test_a_leader_of_before_first_syncs_what_it_wrote() -> None:
    log = a_log(0, 0, waits_for_sync=True)
    log.synced_end = 1
    assert SyncLog(key()) in Stage(broker_id=2, log0=log).lead(1, 2)


def test_where_the_logs_part_this_one_is_cut() -> None:
    stage = Stage(broker_id=2, log0=a_log(0, 1, 1))
    fetch = the_fetch(stage.lead(1, 2, epoch=2))
    effects = stage.answer(fetch, an_answer(found(diverging=(0, 5), high_watermark=5)))
    assert CutLog(key(), 1, lost=0) in effects
    assert stage.logs[key()].high_watermark == 0  # R05
    again = the_fetch(effects)
    assert list(again.request.forgotten_topics_data[0].partitions) == [0]
    stage.logs[key()].cut(1)
    stage.answer(again, an_answer(session_id=0))
    assert named(the_fetch(stage.step(LogCut(key())))) == {0: (1, 0, 2)}


def test_a_cut_of_what_was_committed_is_told() -> None:
    log = a_log(0, 1)
    log.high_watermark = 2
    stage = Stage(broker_id=2, log0=log)
    fetch = the_fetch(stage.lead(1, 2, epoch=2))
    assert CutLog(key(), 1, lost=1) in stage.answer(fetch, an_answer(found(diverging=(0, 5))))


def test_a_log_is_led_only_when_it_has_been_cut() -> None:
    stage = Stage(broker_id=2, log0=a_log(0, 1, 1))
    fetch = the_fetch(stage.lead(1, 2, epoch=2))
    stage.answer(fetch, an_answer(found(diverging=(0, 1))))
    assert not any(isinstance(each, Led) for each in stage.learn(changed(stage.image, leader=2, isr=(2,))))
    stage.logs[key()].cut(1)
    assert Led(key(), 3, 1) in stage.step(LogCut(key()))


def test_a_follower_behind_its_leaders_start_begins_anew_there() -> None:
    stage = Stage(broker_id=2, log0=a_log(0))
    fetch = the_fetch(stage.lead(1, 2))
    response = an_answer(found(error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=7))
    assert RestartLog(key(), 7) in stage.answer(fetch, response)


def test_what_the_leader_has_deleted_may_go() -> None:
    stage = Stage(broker_id=2, log0=a_log(0, 0))
    fetch = the_fetch(stage.lead(1, 2))
    assert TrimLog(key(), 1) in stage.answer(fetch, an_answer(found(high_watermark=2, log_start=1)))


def test_a_new_log_start_is_reported_once_it_is_durable() -> None:
    stage = Stage(broker_id=2, log0=a_log(0, 0))
    fetch = the_fetch(stage.lead(1, 2))
    effects = stage.answer(fetch, an_answer(found(high_watermark=2, log_start=1)))
    fetch = the_fetch(effects)
    assert fetch.request.max_wait_ms == TRIM_WAIT_MS, "the leader may wait for it"
    fetch = the_fetch(stage.answer(fetch, an_answer()))
    assert not fetch.request.topics
    stage.logs[key()].trim(1)
    assert stage.step(LogTrimmed(key())) == []
    fetch = the_fetch(stage.answer(fetch, an_answer()))
    assert [each.log_start_offset for each in fetch.request.topics[0].partitions] == [1]
    assert fetch.request.max_wait_ms > TRIM_WAIT_MS


def test_a_leader_that_deletes_more_meanwhile_is_followed() -> None:
    stage = Stage(broker_id=2, log0=a_log(0, 0))
    fetch = the_fetch(stage.lead(1, 2))
    effects = stage.answer(fetch, an_answer(found(high_watermark=2, log_start=1)))
    effects = stage.answer(the_fetch(effects), an_answer(found(high_watermark=2, log_start=2)))
    assert TrimLog not in kinds(effects), "one at a time"
    stage.logs[key()].trim(1)
    assert stage.step(LogTrimmed(key())) == [TrimLog(key(), 2)]


def test_a_deletion_waits_for_followers_and_no_longer_for_those_that_are_fenced() -> None:
    log = a_log(0, 0)
    stage = Stage(log0=log)
    image = an_image({0: partition(1, 2)})
    stage.learn(image)
    log.high_watermark = 2
    log.trim(1)
    assert stage.replicas.await_start(key(), 0) == []
    assert StartReached not in kinds(stage.replicas.on_fetch(2, 20, [(key(), Asked(2, 0, log_start=1))], 0).effects)
    assert stage.learn(fenced(image, 3)) == [StartReached(key(), 1)]
    stage.replicas.forget_start(key())
    assert stage.replicas.on_fetch(2, 20, [(key(), Asked(2, 0, log_start=2))], 0).effects == []
    assert stage.replicas.await_start(key(), 0) == [StartReached(key(), 1)]


def test_a_refused_partition_rests_and_holds_up_nobody() -> None:
    stage = Stage(broker_id=2)
    parts = {0: partition(1, 2), 1: partition(1, 2)}
    stage.learn(an_image(parts))
    fetch = the_fetch(stage.answer(SendFetch(1, 1, None), an_answer(found(0), found(1))))  # type: ignore[arg-type]
    response = an_answer(found(0, error=ErrorCode.UNKNOWN_LEADER_EPOCH), found(1, log=a_log(0)))
    fetch = the_fetch(stage.answer(fetch, response))
    assert named(fetch) == {1: (1, 0, 0)}
    assert stage.replicas.wake_at <= 200
    stage.wait(200)
    assert named(the_fetch(stage.answer(fetch, an_answer()))) == {0: (0, -1, 0)}


def test_what_was_refused_is_named_again_also_if_its_rest_is_over_before_the_next_request() -> None:
    """Else a leader that did not know yet that it leads would never hear how far the follower is."""
    stage = Stage(broker_id=2, log1=a_log(waits_for_sync=True))
    stage.learn(an_image({0: partition(1, 2), 1: partition(1, 2)}))
    fetch = the_fetch(stage.answer(SendFetch(1, 1, None), an_answer(found(0), found(1))))  # type: ignore[arg-type]
    response = an_answer(found(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER), found(1, log=a_log(0)))
    assert kinds(stage.answer(fetch, response)) == [SyncLog]
    stage.wait(200)
    stage.logs[key(1)].synced_end = 1
    assert named(the_fetch(stage.step(LogsSynced([key(1)])))) == {0: (0, -1, 0), 1: (1, 0, 0)}


def test_who_is_refused_again_and_again_rests_longer_and_longer() -> None:
    """At first the leader may only not have heard yet; and whoever is in sync and rests holds up what is committed."""
    stage = Stage(broker_id=2)
    fetch, rests, now = the_fetch(stage.lead(1, 2)), [], 0
    for _ in range(6):
        gone = stage.answer(fetch, an_answer(found(error=ErrorCode.UNKNOWN_LEADER_EPOCH)))
        stage.answer(the_fetch(gone), an_answer(session_id=0))
        rests.append(stage.replicas.wake_at - now)
        now = stage.replicas.wake_at
        fetch = the_fetch(stage.wait(now))
    assert rests == [20, 40, 80, 160, 200, 200]
    fetch = the_fetch(stage.answer(fetch, an_answer(found(log=a_log(0)))))
    gone = stage.answer(fetch, an_answer(found(error=ErrorCode.UNKNOWN_LEADER_EPOCH)))
    stage.answer(the_fetch(gone), an_answer(session_id=0))
    assert stage.replicas.wake_at - now == FIRST_REST_MS


def test_damaged_records_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_arguments: Any, **_options: Any) -> int:
        raise CorruptBatch("planted")

    stage = Stage(broker_id=2)
    fetch = the_fetch(stage.lead(1, 2))
    with monkeypatch.context() as patch:
        patch.setattr(ModelLog, "append_replicated", refuses)
        gone = the_fetch(stage.answer(fetch, an_answer(found(log=a_log(0)))))
    stage.answer(gone, an_answer(session_id=0))
    assert named(the_fetch(stage.wait(200))) == {0: (0, -1, 0)}


def test_late_answers_and_answers_of_a_former_epoch_are_not_taken() -> None:
    stage = Stage(broker_id=2)
    first = the_fetch(stage.lead(1, 2))
    stage.step(FetchLost(1, first.number))
    second = the_fetch(stage.wait(200))
    assert stage.answer(first, an_answer(found(log=a_log(0)))) == []
    stage.learn(changed(stage.image, replicas=(1, 2), isr=(1, 2), leader=1))
    stage.answer(second, an_answer(found(log=a_log(0, 0))))
    assert stage.logs[key()].written_end == 0


def test_a_source_that_does_not_answer_is_asked_again() -> None:
    stage = Stage(broker_id=2)
    stage.lead(1, 2)
    assert stage.replicas.wake_at == 5_000
    assert stage.wait(5_000) == []
    assert stage.replicas.wake_at == 5_000 + FIRST_REST_MS
    again = the_fetch(stage.wait(stage.replicas.wake_at))
    assert (again.request.session_epoch, named(again)) == (0, {0: (0, -1, 0)})


def test_a_source_that_has_trouble_is_left_alone_for_a_while() -> None:
    stage = Stage(broker_id=2)
    fetch = the_fetch(stage.lead(1, 2))
    assert stage.answer(fetch, an_answer(error=ErrorCode.BROKER_NOT_AVAILABLE)) == []
    assert stage.replicas.wake_at == 200
    the_fetch(stage.wait(200))


# --- leading ----------------------------------------------------------------------------------------------------------


def test_a_follower_that_has_caught_up_is_proposed_until_the_metadata_log_has_it() -> None:
    stage = Stage(log0=a_log(0))
    stage.lead(1)
    change = the_change(stage.fetched_by(2, Asked(1, 0)))
    (wanted,) = change.command.partitions
    assert wanted.isr == ((1, 10), (2, 20))
    done = AlteredPartitions((AlteredPartition(TOPIC_ID, 0, isr=(1, 2), partition_epoch=1),))
    assert stage.step(ChangeAnswered(change.number, done)) == []
    leader = stage.replicas.leader(key())
    assert leader is not None
    assert list(leader.isr) == [1]  # the answer is no news; the log is
    again = the_change(stage.wait(1_000))
    assert again.command == change.command
    stage.learn(changed(stage.image, isr=(1, 2)))
    assert list(leader.isr) == [1, 2]
    assert stage.step(ChangeAnswered(again.number, done)) == []
    assert stage.wait(9_000) == []


def test_an_unanswered_proposal_is_repeated_as_it_was() -> None:
    stage = Stage(log0=a_log(0))
    stage.lead(1)
    change = the_change(stage.fetched_by(2, Asked(1, 0)))
    stage.step(ChangeLost(change.number))
    stage.learn(fenced(stage.image, 2))
    assert the_change(stage.wait(200)).command == change.command


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID])
def test_a_refusal_may_be_that_of_a_former_controller(code: ErrorCode) -> None:
    """KAFKA-14154: what ends a proposal is the metadata log."""
    stage = Stage(log0=a_log(0))
    stage.lead(1)
    change = the_change(stage.fetched_by(2, Asked(1, 0)))
    refused = AlteredPartitions((AlteredPartition(TOPIC_ID, 0, code),))
    stage.step(ChangeAnswered(change.number, refused))
    leader = stage.replicas.leader(key())
    assert leader is not None
    assert leader.maximal_isr == (1, 2)
    assert the_change(stage.wait(1_000)).command == change.command


def test_one_that_the_controller_finds_ineligible_is_thought_over() -> None:
    stage = Stage(log0=a_log(0))
    stage.lead(1)
    change = the_change(stage.fetched_by(2, Asked(1, 0)))
    refused = AlteredPartitions((AlteredPartition(TOPIC_ID, 0, ErrorCode.INELIGIBLE_REPLICA),))
    assert stage.step(ChangeAnswered(change.number, refused)) == []
    leader = stage.replicas.leader(key())
    assert leader is not None
    assert leader.maximal_isr == (1,)
    the_change(stage.wait(1_000))


def test_one_that_is_no_longer_fenced_joins_without_another_fetch() -> None:
    stage = Stage(log0=a_log(0))
    stage.learn(fenced(an_image({0: partition(1)}), 2))
    assert not [each for each in stage.fetched_by(2, Asked(1, 0)) if isinstance(each, SendChange)]
    the_change(stage.learn(fenced(stage.image, 2, is_on=False)))


def test_the_high_watermark_is_told_when_it_moves() -> None:
    stage = Stage()
    stage.lead(1, 2)
    offset = stage.logs[key()].append(0, 5)
    assert stage.replicas.appended(key(), offset, stage.now) == []
    assert stage.fetched_by(2, Asked(1, 0)) == [Committed(key())]


def test_late_followers_are_found_in_time() -> None:
    stage = Stage()
    stage.lead(1, 2)
    offset = stage.logs[key()].append(0, 5)
    stage.replicas.appended(key(), offset, stage.now)
    sent: list[Effect] = []
    while not sent and stage.now < 3_000:
        sent = [each for each in stage.wait(stage.replicas.wake_at) if isinstance(each, SendChange)]
    assert 1_000 < stage.now <= 1_500 + 1
    assert the_change(sent).command.partitions[0].isr == ((1, 10),)


def test_when_nobody_is_behind_nobody_is_looked_for() -> None:
    stage = Stage()
    stage.lead(1, 2)
    stage.fetched_by(2, Asked(0))
    stage.wait(stage.replicas.wake_at)
    assert stage.replicas.wake_at > 10**9


def test_a_changed_minimum_counts_at_once() -> None:
    stage = Stage(log0=a_log(0))
    stage.lead(1, in_sync_min=2)
    assert stage.logs[key()].high_watermark == 0
    lower = ConfigRecord(resource_type=2, resource_name=TOPIC, name="min.insync.replicas", value="1")
    assert Committed(key()) in stage.learn(stage.image.apply([lower]))


def test_a_lower_minimum_is_nothing_to_one_that_leads_no_longer() -> None:
    """It learns of both at once: that somebody else leads, and that one in sync would have been enough."""
    stage = Stage(log0=a_log(0))
    stage.lead(1, in_sync_min=2)
    lower = ConfigRecord(resource_type=2, resource_name=TOPIC, name="min.insync.replicas", value="1")
    effects = stage.learn(changed(stage.image, leader=2, isr=(2,)).apply([lower]))
    assert Followed(key(), 2, 1) in effects
    assert stage.logs[key()].high_watermark == 0


def test_settings_of_all_brokers_count_at_once() -> None:
    stage = Stage()
    stage.lead(1, 2)
    sooner = ConfigRecord(resource_type=4, resource_name="", name="replica.lag.time.max.ms", value="100")
    stage.learn(stage.image.apply([sooner]))
    offset = stage.logs[key()].append(0, 5)
    stage.replicas.appended(key(), offset, stage.now)
    while stage.now < 1_000 and not stage.replicas.leader(key()).proposal:  # type: ignore[union-attr]
        stage.wait(stage.replicas.wake_at)
    assert stage.now < 600


# --- moving -----------------------------------------------------------------------------------------------------------


def arriving(number: int) -> Partition:
    del number
    return partition(1, replicas=(2, 1))._replace(adding_replicas=(2,))


def test_replicas_that_move_here_come_one_after_the_other() -> None:
    stage = Stage(broker_id=2)
    fetch = the_fetch(stage.learn(an_image({0: arriving(0), 1: arriving(1)})))
    assert named(fetch) == {0: (0, -1, 0)}
    fetch = the_fetch(stage.answer(fetch, an_answer(found(0))))
    there = changed(stage.image, isr=(1, 2), adding_replicas=())
    assert not [each for each in stage.learn(there) if isinstance(each, SendFetch)]
    assert named(the_fetch(stage.answer(fetch, an_answer()))) == {1: (0, -1, 0)}


def test_they_come_only_so_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(broker_id=2)
    fetch = the_fetch(stage.learn(an_image({0: arriving(0)})))
    source = a_log(*[0] * 50)
    monkeypatch.setattr("tests.simulation.replication_disk.Records.__len__", lambda self: 50 * len(self.entries))
    gone = the_fetch(stage.answer(fetch, an_answer(found(log=source))))
    assert list(gone.request.forgotten_topics_data[0].partitions) == [0]
    stage.answer(gone, an_answer(session_id=0))
    assert stage.replicas.wake_at == 1_501  # 2,500 bytes at 1,000 a second, of which a second was there
    assert named(the_fetch(stage.wait(1_501))) == {0: (50, 0, 0)}


# --- ten thousand -----------------------------------------------------------------------------------------------------


def test_a_partition_costs_nothing_while_nothing_happens_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 10_000
    looks = 0
    wanted = Following.wanted

    def counted(self: Following, bytes_max: int) -> Any:
        nonlocal looks
        looks += 1
        return wanted(self, bytes_max)

    stage = Stage(broker_id=2)
    fetch, rounds = the_fetch(stage.learn(an_image({number: partition(1, 2) for number in range(count)}))), 0
    while fetch.request.topics:
        assert len(named(fetch)) <= NAMED_MAX
        fetch = the_fetch(stage.answer(fetch, an_answer(*map(found, named(fetch)))))
        rounds += 1
    assert count / NAMED_MAX <= rounds <= 15, "they are named in requests that are small for their source"
    monkeypatch.setattr(Following, "wanted", counted)
    for _ in range(10):
        fetch = the_fetch(stage.answer(fetch, an_answer()))
        assert not fetch.request.topics
    assert looks == 0
    fetch = the_fetch(stage.answer(fetch, an_answer(found(77, log=a_log(0)))))
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
    stage = Stage(broker_id=2)
    stage.logs[key()] = log
    fetch = the_fetch(stage.lead(1, 2, epoch=2))
    assert named(fetch) == {0: (3, 1, 2)}
    effects = stage.answer(fetch, an_answer(found(diverging=(0, 2))))
    (cut,) = [each for each in effects if isinstance(each, CutLog)]
    drive(truncation.truncate(ours.log, ours.disk, ours.directory.ledger, cut.end_offset, now_ms=0))
    gone = the_fetch(effects)
    stage.answer(gone, an_answer(session_id=0))
    fetch = the_fetch(stage.step(LogCut(key())))
    assert named(fetch) == {0: (2, 0, 2)}
    missing = memoryview(theirs.stored()[1])
    response = an_answer(found(high_watermark=5))
    response.responses[0].partitions[0].records = missing
    assert SyncLog(key()) in stage.answer(fetch, response)
    drive(ours.directory.commit())
    assert named(the_fetch(stage.step(LogsSynced([key()])))) == {0: (5, 2, 2)}
    assert ours.stored() == theirs.stored()
    assert ours.log.high_watermark == 5


def test_an_answer_that_ends_inside_a_batch_is_taken_up_to_there() -> None:
    theirs, ours = Place(), Place()
    theirs.append(a_batch(2), epoch=0)
    theirs.append(a_batch(3), epoch=0)
    stage = Stage(broker_id=2)
    stage.logs[key()] = ours.log
    fetch = the_fetch(stage.lead(1, 2))
    response = an_answer(found(high_watermark=5))
    response.responses[0].partitions[0].records = batches_of(theirs)[:-1]
    assert SyncLog(key()) in stage.answer(fetch, response)
    drive(ours.directory.commit())
    assert named(the_fetch(stage.step(LogsSynced([key()])))) == {0: (2, 0, 0)}
    assert ours.stored() == theirs.stored()[:1]
