"""DescribeLogDirs: the data directory of a node and the replicas in it.

Serves    DescribeLogDirs 1–5.
Answers   one directory, with the requested replicas that it holds; KAFKA_STORAGE_ERROR if it is offline.
Departs   from Kafka 4.3: the total size of the volume is not reported (-1); replicas are never moved between
          directories.
"""

from penstock.log.directory import DataDirectory
from penstock.model.errors import ErrorCode
from penstock.server.connections.serving import Call, serves
from penstock.server.loop.pieces import Turns, each_once
from penstock.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


class DescribeLogDirsHandler:
    """Describes the data directory of this node."""

    def __init__(self, directory: DataDirectory, data_path: str) -> None:
        """`data_path` is the path of the directory, as the operator gave it."""
        self._directory = directory
        self._data_path = data_path

    @serves(DescribeLogDirsRequest)
    async def describe_log_dirs(self, request: DescribeLogDirsRequest, _call: Call) -> DescribeLogDirsResponse:
        """Describes the requested replicas; all if the request has null topics."""
        directory = self._directory
        if directory.offline_reason is not None:
            offline = DescribeLogDirsResult(
                error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=self._data_path, topics=()
            )
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
            log_dir=self._data_path,
            topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
            usable_bytes=directory.disk.free_bytes(),
        )
        return DescribeLogDirsResponse(throttle_time_ms=0, results=[found])
