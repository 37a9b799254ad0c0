"""Brokers: registration, heartbeats, controlled shutdown, fencing, unregistration."""

import pytest

from penstock.metadata.cluster_commands import Heartbeat, RegisterController, Tick, UnregisterBroker
from penstock.metadata.commands import RegisterBroker, but_for_unsynced
from penstock.metadata.records import BrokerFeature, ControllerEndpoint
from penstock.metadata.view import ELR_FEATURE, RECORDS_PER_STEP_MAX
from penstock.model.errors import ErrorCode
from tests.unit.metadata.cluster_world import ClusterWorld


def test_a_broker_is_fenced_until_it_has_followed_the_log_to_its_own_registration() -> None:
    world = ClusterWorld(brokers=())
    epoch = world.register(1).epoch
    assert epoch == len(world.log) - 1, "the offset of the registration"
    assert world.broker(1).is_fenced
    behind = world.beat(1, offset=epoch - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    there = world.beat(1, offset=epoch)
    assert (there.is_caught_up, there.is_fenced) == (True, False)
    assert world.broker(1).is_active


def test_who_asks_to_be_fenced_is() -> None:
    world = ClusterWorld()
    world.create((1, 2, 3))
    assert world.beat(1, fence=True).is_fenced
    assert world.partition().isr == (2, 3)
    assert world.beat(1, fence=True).is_fenced, "and stays so"
    assert not world.beat(1).is_fenced


def test_heartbeats_of_strangers_and_of_earlier_lives_are_refused() -> None:
    world = ClusterWorld()
    assert world.ask(Heartbeat(7, 0, 0, 0)).code is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert world.ask(Heartbeat(1, world.broker(1).epoch - 1, 0, 0)).code is ErrorCode.STALE_BROKER_EPOCH


def test_a_silent_broker_is_fenced_after_three_seconds_and_leads_nothing() -> None:
    world = ClusterWorld()
    world.create((1, 2, 3), (2, 3, 1))
    world.silent = {1}
    world.pass_ms(2_900)
    assert world.broker(1).is_active
    world.pass_ms(200)
    assert world.broker(1).is_fenced
    first, second = world.partition(index=0), world.partition(index=1)
    assert (first.leader, first.isr, first.leader_epoch) == (2, (2, 3), 1)
    assert (second.leader, second.isr, second.leader_epoch) == (2, (2, 3), 0)


def test_a_lost_peer_is_fenced_at_once_unless_it_is_heard() -> None:
    world = ClusterWorld()
    world.create((1, 2, 3))
    world.controller.lose(2, world.broker(2).epoch)
    world.beat(2)
    world.tick()
    assert world.broker(2).is_active, "it answered in time"
    world.controller.lose(2, world.broker(2).epoch - 1)
    world.tick()
    assert world.broker(2).is_active, "that was an earlier life"
    world.controller.lose(2, world.broker(2).epoch)
    world.tick()
    assert world.broker(2).is_fenced
    assert world.partition().isr == (1, 3)


def test_a_controller_that_stood_still_fences_nobody() -> None:
    """R34: a stall of any length counts as a quarter of a second."""
    world = ClusterWorld()
    for _ in range(5):
        world.now += 60_000
        world.tick()
        for broker_id in (1, 2, 3):
            world.beat(broker_id)
    assert all(broker.is_active for broker in world.image.brokers.values())
    world.silent = {3}
    world.pass_ms(3_100)
    assert world.broker(3).is_fenced, "who really is silent is still noticed"


def test_after_a_stall_it_listens_before_it_judges() -> None:
    """R34: a broker close to its session timeout whose heartbeat arrived while the controller was stalled."""
    world = ClusterWorld()
    world.silent = {3}
    world.pass_ms(2_900)
    world.now += 9_000
    world.tick()
    assert world.broker(3).is_active, "the timer came first"
    world.silent = set()
    world.pass_ms(1_000)
    assert world.broker(3).is_active
    world.silent = {3}
    world.pass_ms(2_900)
    for _ in range(3):
        world.now += 1_000
        for broker_id in (1, 2):
            world.beat(broker_id)
        world.tick()
    assert world.broker(3).is_fenced, "one that is always late still judges"


def test_a_controller_that_has_just_been_elected_gives_everybody_a_whole_session() -> None:
    world = ClusterWorld()
    world.silent = {1, 2, 3}
    world.pass_ms(2_900)
    world.controller = world.replayed()
    world.controller.begin(world.now)
    world.pass_ms(2_900)
    assert all(broker.is_active for broker in world.image.brokers.values())
    world.pass_ms(300)
    assert all(broker.is_fenced for broker in world.image.brokers.values())


def test_many_partitions_go_in_pieces_and_the_fence_closes_with_the_last() -> None:
    world = ClusterWorld()
    for topic in "abc":
        world.create(*((1, 2, 3),) * 900, name=topic)
    world.records_most = 0
    world.silent = {1}
    before = len(world.log)
    world.pass_ms(3_100)
    assert world.records_most <= RECORDS_PER_STEP_MAX + 1
    assert len(world.log) - before == 2_701
    assert world.broker(1).is_fenced
    assert world.controller.index.led == {1: 0, 2: 2_700}


def test_until_the_fence_is_closed_nobody_takes_the_silent_one_back_in() -> None:
    world = ClusterWorld()
    world.create(*((1, 2, 3),) * 1_500)
    world.silent = {3}
    world.now += 100
    for _ in range(29):
        world.now += 100
        world.beat(1)
        world.beat(2)
        world.controller.time_passes(world.now)
    world.controller.time_passes(world.now + 100)
    world.ask(Tick())
    assert not world.broker(3).is_fenced, "a piece is left to do"
    assert world.partition(index=0).isr == (1, 2)
    assert world.alter(world.new_isr(1, 2, 3)).code is ErrorCode.INELIGIBLE_REPLICA


# --- registration -----------------------------------------------------------------------------------------------------


def test_two_that_call_themselves_the_same() -> None:
    world = ClusterWorld()
    assert world.register(1).code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    world.kill(1)
    assert world.register(1).code is ErrorCode.NONE


def test_a_directory_belongs_to_one_broker() -> None:
    world = ClusterWorld(brokers=(1,))
    directory = world.broker(1).log_dirs
    stolen = world.ask(RegisterBroker(2, b"x" * 16, len(world.log), (), (), None, directory, is_fenced=True))
    assert stolen.code is ErrorCode.INVALID_REGISTRATION
    twice = world.ask(RegisterBroker(2, b"x" * 16, len(world.log), (), (), None, (b"a" * 16,) * 2, is_fenced=True))
    assert twice.code is ErrorCode.INVALID_REGISTRATION


def test_a_broker_must_support_what_the_cluster_has_agreed_on() -> None:
    world = ClusterWorld(brokers=())
    old = BrokerFeature(name=ELR_FEATURE, min_supported_version=0, max_supported_version=0)
    refused = world.register(1, features=(old,))
    assert refused.code is ErrorCode.UNSUPPORTED_VERSION
    assert "eligible.leader.replicas.version" in (refused.message or "")


def test_who_may_have_lost_records_is_no_longer_eligible() -> None:
    """R10: the last eligible replica returns without its records."""
    world = ClusterWorld()
    world.create((1, 2, 3))
    for broker_id in (1, 2, 3):
        world.kill(broker_id)
    assert world.partition().eligible_leader_replicas == (2, 3)
    world.restart(3, is_clean=False)
    assert world.partition().eligible_leader_replicas == (2,)
    assert world.partition().leader == -1, "and it does not lead"
    world.restart(2)
    assert world.partition().leader == 2
    assert world.partition().isr == (2,)


def test_who_may_lack_only_what_was_not_synced_is_distrusted_only_there() -> None:
    world = ClusterWorld()
    world.create((1, 2, 3), name="orders")
    world.create((1, 2, 3), name="clicks", durability="replicated")
    for broker_id in (1, 2, 3):
        world.kill(broker_id)
    active_epoch = world.broker(3).epoch
    world.silent.discard(3)
    world.start(3, previous_epoch=but_for_unsynced(active_epoch))
    assert world.partition("orders").leader == 3
    assert world.partition("clicks").leader == -1
    assert world.partition("clicks").eligible_leader_replicas == (2,)
    world.kill(3)
    assert world.partition("orders").eligible_leader_replicas == (2, 3)
    world.silent.discard(3)
    world.start(3, previous_epoch=but_for_unsynced(active_epoch))
    assert world.partition("orders").eligible_leader_replicas == (2,), "it was active in a later epoch"


def test_an_answer_that_was_lost_makes_nobody_suspect() -> None:
    """A broker must know its last active epoch, not later registrations whose response was lost."""
    world = ClusterWorld()
    world.create((1, 2, 3))
    for broker_id in (1, 2, 3):
        world.kill(broker_id)
    learned = world.broker(3).epoch
    world.register(3, previous_epoch=learned)
    world.register(3, previous_epoch=learned)
    late = world.register(3, previous_epoch=learned - 1)
    assert late.code is ErrorCode.STALE_BROKER_EPOCH, "sent in an earlier life"
    assert world.partition().eligible_leader_replicas == (2, 3)
    world.silent.discard(3)
    world.beat(3)
    world.tick()
    assert world.partition().leader == 3


# --- shutting down ----------------------------------------------------------------------------------------------------


def test_leaders_move_away_before_a_broker_stops() -> None:
    world = ClusterWorld()
    world.create((1, 2, 3), (2, 3, 1))
    first = world.beat(1, stop=True)
    assert not first.should_shut_down
    assert world.broker(1).is_shutting_down
    world.tick()
    assert world.partition(index=0).leader == 2
    assert 1 not in world.partition(index=1).isr
    moved_at = len(world.log)
    assert not world.beat(1, stop=True).should_shut_down, "the others have not learned of it"
    world.beat(2, offset=moved_at - 1)
    world.beat(3, offset=moved_at - 2)
    assert not world.beat(1, stop=True).should_shut_down, "one of them has not"
    world.beat(3, offset=moved_at - 1)
    assert world.beat(1, stop=True).should_shut_down
    assert world.broker(1).is_fenced


def test_who_shuts_down_does_not_come_back_in_sync() -> None:
    """R07."""
    world = ClusterWorld()
    world.create((1, 2, 3))
    world.beat(3, stop=True)
    world.tick()
    assert world.partition().isr == (1, 2)
    assert world.alter(world.new_isr(1, 2, 3)).code is ErrorCode.INELIGIBLE_REPLICA
    assert world.partition().isr == (1, 2)


def test_a_fenced_broker_may_stop_at_once_and_one_that_stopped_stays_out() -> None:
    world = ClusterWorld()
    world.register(4)
    assert world.beat(4, offset=0, stop=True).should_shut_down
    world.beat(1, stop=True)
    world.pass_ms(200)
    world.beat(1, stop=True)
    assert world.broker(1).is_fenced
    assert world.beat(1).should_shut_down, "in this life"
    world.start(1, previous_epoch=world.broker(1).epoch)
    assert world.broker(1).is_active


# --- unregistration ---------------------------------------------------------------------------------------------------


def test_a_forgotten_broker_is_in_sync_nowhere() -> None:
    world = ClusterWorld()
    world.create((1, 2, 3))
    assert world.ask(UnregisterBroker(1)).code is ErrorCode.NONE
    assert 1 not in world.image.brokers
    assert world.partition().isr == (2, 3)
    assert world.ask(UnregisterBroker(1)).code is ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize("partitions", [1_000, 2_500])
def test_forgetting_goes_in_pieces_too(partitions: int) -> None:
    world = ClusterWorld()
    world.create(*((1, 2, 3),) * partitions)
    answers: list[ErrorCode] = []
    while not answers or answers[-1] is not ErrorCode.NONE:
        answers.append(world.ask(UnregisterBroker(1)).code)
    assert answers[:-1] == [ErrorCode.REQUEST_TIMED_OUT] * ((partitions - 1) // RECORDS_PER_STEP_MAX)
    assert world.controller.index.led == {1: 0, 2: partitions}


def test_a_controller_tells_where_it_is() -> None:
    world = ClusterWorld()
    endpoint = ControllerEndpoint(name="CONTROLLER", host="h", port=1, security_protocol=0)
    command = RegisterController(9, b"i" * 16, (endpoint,), ())
    assert world.ask(command).code is ErrorCode.NONE
    end = len(world.log)
    world.ask(command)
    assert len(world.log) == end, "the same again is no news"
    assert world.image.controllers[9].end_points == (endpoint,)
