"""DescribeLogDirs: the data directories of a node and what lies in them.

Serves    DescribeLogDirs 1–5.
Answers   one directory, with every replica that was asked for and lies there; KAFKA_STORAGE_ERROR when it is offline.
Departs   from Kafka 4.3: the total size of the volume is not told (-1); no replica is ever moved between directories.
"""

from penstock.model.errors import ErrorCode
from penstock.server.handlers.needs import node_of
from penstock.server.pieces import Turns, each_once
from penstock.server.serving import Call, serves
from penstock.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


@serves(DescribeLogDirsRequest)
async def describe_log_dirs(request: DescribeLogDirsRequest, call: Call) -> DescribeLogDirsResponse:
    """Without topics in the request, everything."""
    node = node_of(call)
    directory = node.directory
    if directory.offline_reason is not None:
        offline = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=node.data_path, topics=())
        return DescribeLogDirsResponse(throttle_time_ms=0, results=[offline])
    asked, turns = request.topics, Turns()
    wanted = None
    if asked is not None:
        wanted = await each_once(((topic.topic, index) for topic in asked for index in topic.partitions), turns)
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    async for log in turns.through(list(directory.logs.values())):
        name, index = log.identity.topic, log.identity.partition
        if wanted is None or (name, index) in wanted:
            topics.setdefault(name, []).append(
                DescribeLogDirsPartition(
                    partition_index=index,
                    partition_size=log.size_bytes,
                    offset_lag=max(0, log.high_watermark - log.written_end),
                    is_future_key=False,
                )
            )
    found = DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=node.data_path,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        usable_bytes=directory.disk.free_bytes(),
    )
    return DescribeLogDirsResponse(throttle_time_ms=0, results=[found])
