"""Group benchmarks: refused commits do not count, gaps are computed correctly, the page has every row."""

import asyncio
import struct
import time

import pytest

from benchmarks.groups import results
from benchmarks.groups.committing import CORRELATION_ID, VERSION, Load, Refused, frames, group_ids, measure
from benchmarks.groups.members import Heard, waits
from penstock.coordinator.placement import partition_of
from penstock.model.errors import ErrorCode
from penstock.wire.api import Api
from penstock.wire.codec import decode, encode
from penstock.wire.headers import read_request_header
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


def test_each_frame_commits_all_partitions_of_one_group() -> None:
    for name, frame in zip(("a", "b"), frames("work", ["a", "b"], 3, 7), strict=True):
        header, position = read_request_header(Api.OFFSET_COMMIT, VERSION, memoryview(frame)[4:])
        request = decode(OffsetCommitRequest, VERSION, memoryview(frame)[4:], position)
        assert (header.correlation_id, request.group_id, request.member_id) == (CORRELATION_ID, name, "")
        assert [each.partition_index for each in request.topics[0].partitions] == [0, 1, 2]


def test_groups_of_one_shard_lie_there() -> None:
    assert {partition_of(each, 50) for each in group_ids(20, 3, 50)} == {3}
    assert len({partition_of(each, 50) for each in group_ids(200, -1, 1)}) > 10


def answer(code: ErrorCode) -> bytes:
    partitions = [OffsetCommitResponsePartition(partition_index=each, error_code=code) for each in range(2)]
    said = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="work", partitions=partitions)])
    body = struct.pack(">iB", CORRELATION_ID, 0) + encode(said, VERSION)
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(("code", "requests_s"), [(ErrorCode.NONE, 0.0), (ErrorCode.NONE, 200.0)])
def test_what_is_answered_counts(code: ErrorCode, requests_s: float) -> None:
    found = asyncio.run(_commit_to(code, requests_s))
    assert found["offsets_s"] == pytest.approx(2 * found["requests_s"])
    assert found["requests_s"] > 0


def test_a_refused_commit_ends_the_load() -> None:
    with pytest.raises(Refused, match="NOT_COORDINATOR"):
        asyncio.run(_commit_to(ErrorCode.NOT_COORDINATOR, 0.0))


async def _commit_to(code: ErrorCode, requests_s: float) -> dict[str, float]:
    """Commits to a broker that gives every request the same response."""
    said = answer(code)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                await reader.readexactly(size)
                writer.write(said)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.transport.abort()

    serving: list[asyncio.Task[None] | None] = []
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        return await measure(f"127.0.0.1:{port}", "work", ["a", "b", "c"], 2, 0.3, 2, 1, requests_s)
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.gather(*filter(None, serving))
        await asyncio.sleep(0)


def test_a_load_that_lost_its_broker_says_so() -> None:
    async def story() -> None:
        load = Load(frames("work", ["a"], 1, 1), 1, 0.0)
        load.fail(ConnectionError("gone"))
        with pytest.raises(ConnectionError, match="gone"):
            await load._waits

    asyncio.run(story())


def test_a_wait_is_the_longest_of_a_partition_until_now() -> None:
    now_s = time.time()
    heard = {0: [Heard(now_s - 5.0, 4.0), Heard(now_s - 0.9, 0.7), Heard(now_s, 0.1)], 1: []}
    found = waits({**heard, 2: [Heard(now_s - 0.8, 0.1)]}, now_s - 1.0)
    assert found == {0: pytest.approx(0.7, abs=0.1), 1: pytest.approx(1.0, abs=0.1), 2: pytest.approx(0.8, abs=0.1)}


def test_the_page_has_a_line_for_each_contender_and_load() -> None:
    rounds = [{"records_s": 190.0}, {"records_s": 197.0}, {"records_s": 195.0}]
    about = {
        "date": "2026-01-01",
        "commit": "abc",
        "command": "x",
        "machine": {"cores": 2, "memory_gib": 24, "kernel": "Linux", "python": "3"},
        "versions": {"penstock": "Penstock 1"},
    }
    page = results.page({"scaling": {"found": {"1 members": {"penstock": rounds}}, "measured": about}})
    assert "| 1 members | Penstock | 195 (190–197) |" in page
    assert "Penstock 1." in page
