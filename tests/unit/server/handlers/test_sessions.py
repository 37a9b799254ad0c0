"""Fetch sessions through the handler: incremental responses, errors, rotation, long polls."""

import asyncio
from typing import Any

import pytest

from penstock.model.errors import ErrorCode, RequestTooCostly
from penstock.server.partitions.partition import Partition
from penstock.wire.messages.fetch import FetchResponse, ForgottenTopic
from tests.unit.server.handlers.bare_node import (
    NONE,
    BareNode,
    a_batch,
    fetched,
    now_s,
    offsets,
    part,
    parts_of,
    running,
    to_fetch,
    topic_id,
)

VERSIONS = range(7, 19)
BATCH_BYTES = len(a_batch())


async def begin(node: BareNode, version: int = 12, count: int = 3, **options: Any) -> int:
    """Opens a session over that many partitions, and returns its id."""
    request = to_fetch(*(part(index) for index in range(count)), session_epoch=0, **options)
    response = await node.fetch(request, version)
    assert response.error_code == NONE
    assert sorted(parts_of(response)) == list(range(count))
    return response.session_id


async def go_on(
    node: BareNode, session_id: int, epoch: int, *parts: Any, version: int = 12, **options: Any
) -> FetchResponse:
    return await node.fetch(to_fetch(*parts, session_id=session_id, session_epoch=epoch, **options), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_told_only_what_changed(version: int) -> None:
    async def story(node: BareNode) -> None:
        partitions = [await node.add(index=index) for index in range(3)]
        session_id = await begin(node, version)
        assert session_id > 0
        assert parts_of(await go_on(node, session_id, 1, version=version)) == {}
        node.append(partitions[1])
        response = await go_on(node, session_id, 2, version=version)
        assert response.session_id == session_id
        assert {index: offsets(each) for index, each in parts_of(response).items()} == {1: [0]}
        response = await go_on(node, session_id, 3, part(1, 1), version=version)
        assert parts_of(response) == {}
        node.append(partitions[2])
        forgotten = [ForgottenTopic(topic="t", topic_id=topic_id("t"), partitions=[2])]
        response = await go_on(node, session_id, 4, version=version, forgotten_topics_data=forgotten)
        assert parts_of(response) == {}

    running(story)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_tells_session_errors(version: int) -> None:
    async def story(node: BareNode) -> None:
        await node.add()
        session_id = await begin(node, version, 1)
        for asked, epoch, code in (
            (session_id + 1, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            (session_id, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ):
            began_s = now_s()
            response = await go_on(node, asked, epoch, version=version, max_wait_ms=1000)
            assert (response.error_code, response.session_id, response.responses) == (code, 0, ())
            assert now_s() == began_s
        other = 12 if version >= 13 else 13
        response = await go_on(node, session_id, 1, version=other)
        assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        assert (await go_on(node, session_id, 1, version=version)).error_code == NONE
        assert (await go_on(node, session_id, -1, version=version)).session_id == 0
        assert session_id not in node.fetch_sessions

    running(story)


def test_a_request_without_a_wish_for_a_session_gets_none() -> None:
    async def story(node: BareNode) -> None:
        await node.add()
        assert (await node.fetch(to_fetch(part(), session_epoch=-1))).session_id == 0
        assert (await node.fetch(to_fetch(part()), 6)).session_id == 0
        assert len(node.fetch_sessions) == 0

    running(story)


def test_an_idle_session_waits_and_its_answer_is_empty() -> None:
    async def story(node: BareNode) -> None:
        partitions = [await node.add(index=index) for index in range(3)]
        session_id = await begin(node)
        began_s = now_s()
        assert parts_of(await go_on(node, session_id, 1, max_wait_ms=500)) == {}
        assert now_s() - began_s == pytest.approx(0.5)

        async def later() -> FetchResponse:
            request = to_fetch(session_id=session_id, session_epoch=2, max_wait_ms=60_000)
            return await fetched(await node.begin(request, 12))

        task = asyncio.get_running_loop().create_task(later())
        await asyncio.sleep(1)
        node.append(partitions[2])
        assert {index: offsets(each) for index, each in parts_of(await task).items()} == {2: [0]}

    running(story)


def test_an_error_that_goes_away_is_told() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add(index=0)
        session_id = await begin(node, count=1)
        node.partitions.remove(partition)
        for epoch in (1, 2):
            found = parts_of(await go_on(node, session_id, epoch, max_wait_ms=1000))
            assert found[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        node.partitions.add(Partition("t", topic_id("t"), 0, partition.log, 3))
        found = parts_of(await go_on(node, session_id, 3))
        assert (found[0].error_code, found[0].high_watermark) == (NONE, 0)
        assert parts_of(await go_on(node, session_id, 4)) == {}

    running(story)


def test_a_reader_at_the_end_learns_of_a_new_start_and_of_trouble() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        node.append(partition)
        response = await node.fetch(to_fetch(part(0, 1), session_epoch=0))
        assert parts_of(await go_on(node, response.session_id, 1)) == {}
        await node.upkeep.delete_before(partition.log, 1)
        assert parts_of(await go_on(node, response.session_id, 2))[0].log_start_offset == 1
        assert parts_of(await go_on(node, response.session_id, 3)) == {}
        partition.log.take_offline("for a test")
        found = parts_of(await go_on(node, response.session_id, 4))
        assert found[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR

    running(story)


def test_a_reader_that_was_out_of_range_is_told_where_it_is_now() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        node.append(partition)
        response = await node.fetch(to_fetch(part(0, 9), session_epoch=0))
        assert parts_of(response)[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        found = parts_of(await go_on(node, response.session_id, 1, part(0, 1)))
        assert (found[0].error_code, found[0].high_watermark) == (NONE, 1)

    running(story)


def test_a_leader_epoch_that_was_told_once_goes_on_being_checked() -> None:
    """R28, KAFKA-9338."""

    async def story(node: BareNode) -> None:
        partition = await node.add(epoch=3)
        response = await node.fetch(to_fetch(part(0, current_leader_epoch=3), session_epoch=0))
        partition.leader_epoch = 4
        found = parts_of(await go_on(node, response.session_id, 1))
        assert found[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        found = parts_of(await go_on(node, response.session_id, 2, part(0, current_leader_epoch=4)))
        assert found[0].error_code == NONE

    running(story)


def test_with_room_for_one_batch_all_partitions_get_their_turn() -> None:
    async def story(node: BareNode) -> None:
        for index in range(4):
            node.append(await node.add(index=index))
        request = to_fetch(*(part(index) for index in range(4)), session_epoch=0, max_bytes=1)
        session_id = (await node.fetch(request)).session_id
        served = []
        for epoch in range(1, 9):
            response = await go_on(node, session_id, epoch, max_bytes=1)
            served += [index for index, each in parts_of(response).items() if each.records]
        assert served == [0, 1, 2, 3, 0, 1, 2, 3]

    running(story)


def test_an_overtaken_long_poll_releases_what_it_read() -> None:
    async def story(node: BareNode) -> None:
        partition = await node.add()
        session_id = await begin(node, count=1)
        first = await node.begin(to_fetch(session_id=session_id, session_epoch=1, max_wait_ms=60_000), 12)
        second = await node.begin(to_fetch(session_id=session_id, session_epoch=2, max_wait_ms=60_000), 12)
        node.append(partition)
        response = await fetched(first)
        assert (response.error_code, response.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, ())
        assert node.pins == 0
        response = await fetched(second)
        assert offsets(parts_of(response)[0]) == [0]

    running(story)


def test_when_there_is_no_room_readers_are_served_without_a_session() -> None:
    async def story(node: BareNode) -> None:
        from penstock.replication.fetch_sessions import FetchSessions

        node.fetch_sessions = FetchSessions(node.entropy, sessions_max=2)
        for index in range(3):
            await node.add(index=index)
        ids = [await begin(node) for _ in range(3)]
        assert [session_id > 0 for session_id in ids] == [True, True, False]

    running(story)


# --- many partitions --------------------------------------------------------------------------------------------------

MANY = 3_000


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_a_fetch_of_many_partitions_is_looked_at_in_pieces(version: int) -> None:
    """300,000 nonexistent partitions used to block the loop, and stayed in a session."""

    async def story(node: BareNode) -> None:
        partition = await node.add()
        node.append(partition)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while turns < 1_000:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(other())
        response = await node.fetch(to_fetch(*(part(n) for n in range(MANY)), session_epoch=0), version)
        counting.cancel()
        assert turns >= 10
        found = parts_of(response)
        assert len(found) == MANY
        assert offsets(found[0]) == [0]
        assert {found[n].error_code for n in range(1, MANY)} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert response.session_id == 0
        assert (len(node.fetch_sessions), node.fetch_sessions.partitions) == (0, 0)

    running(story)


def test_a_fetch_of_many_partitions_waits_for_records_and_for_its_time() -> None:
    async def story(node: BareNode) -> None:
        partitions = [await node.add(index=index) for index in range(1_500)]
        request = to_fetch(*(part(n) for n in range(1_500)), session_epoch=0, max_wait_ms=5_000)
        began_s = now_s()
        answer = asyncio.create_task(node.fetch(request))
        await asyncio.sleep(1)
        assert not answer.done()
        node.append(partitions[77])
        response = await answer
        assert 1 <= now_s() - began_s < 2
        assert offsets(parts_of(response)[77]) == [0]
        session_id = response.session_id
        assert session_id != 0
        empty = to_fetch(*(part(n, offset=n == 77) for n in range(1_500)), session_epoch=-1, max_wait_ms=500)
        began_s = now_s()
        assert len(parts_of(await node.fetch(empty))) == 1_500
        assert 0.5 <= now_s() - began_s < 1

    running(story)


def test_a_session_takes_many_partitions_at_once() -> None:
    async def story(node: BareNode) -> None:
        partitions = [await node.add(index=index) for index in range(1_500)]
        session_id = await begin(node, count=1)
        node.append(partitions[800])
        response = await go_on(node, session_id, 1, *(part(n) for n in range(1, 1_500)))
        assert (response.error_code, response.session_id) == (NONE, session_id)
        assert offsets(parts_of(response)[800]) == [0]
        assert node.fetch_sessions.partitions == 1_500
        assert parts_of(await go_on(node, session_id, 2, part(800, 1))) == {}
        forgotten = [ForgottenTopic(topic="t", topic_id=topic_id("t"), partitions=range(20_000))]
        response = await go_on(node, session_id, 3, forgotten_topics_data=forgotten)
        assert (response.error_code, parts_of(response), len(node.fetch_sessions)) == (NONE, {}, 0)

    running(story)


def test_a_client_that_goes_while_many_partitions_are_looked_at_leaves_nothing_pinned() -> None:
    async def story(node: BareNode) -> None:
        for index in range(1_500):
            node.append(await node.add(index=index))
        request = to_fetch(*(part(n) for n in range(1_500)), session_epoch=-1, max_bytes=1 << 30)
        answer = asyncio.create_task(node.fetch(request))
        while not node.pins:
            await asyncio.sleep(0)
        assert not answer.done()
        answer.cancel()
        await asyncio.gather(answer, return_exceptions=True)
        assert not node.pins
        await asyncio.sleep(1)

    running(story)


def test_no_more_partitions_than_allowed_are_fetched_at_once() -> None:
    async def story(node: BareNode) -> None:
        with pytest.raises(RequestTooCostly, match="more than 20,000 partitions"):
            await node.fetch(to_fetch(*(part(n) for n in range(20_001)), session_epoch=-1))

    running(story)
