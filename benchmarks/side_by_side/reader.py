"""A load of Fetch requests, as many as the broker serves: one request in flight per connection, as consumers do.

Only batch headers are read: records and bytes are counted, values are not touched. A reader that reaches the end
restarts at offset 0, unless it replays or tails. Offsets must continue without a gap.
"""

import json
import select
import socket
import struct
import sys
import time
from array import array
from typing import NamedTuple

from benchmarks.side_by_side.frames import (
    CORRELATION_POSITION,
    FETCH_VERSION,
    INT32,
    fetch_request,
)
from benchmarks.side_by_side.jobs import Job, percentiles, told_window
from penstock.model.errors import ErrorCode
from penstock.wire.api import Api
from penstock.wire.codec import decode
from penstock.wire.headers import read_response_header
from penstock.wire.messages.fetch import FetchResponse

BATCH_START = struct.Struct(">qiib")
LAST_OFFSET_DELTA_POSITION = 23
LENGTH_EXCLUDES_BYTES = 12
HEADER_BYTES = 61
MAGIC = 2
ANSWER_OVERHEAD_BYTES = 64 * 1024


class WrongData(Exception):
    """A response is not the expected one."""


class Walked(NamedTuple):
    """The counts of one partition's records in a response."""

    records: int
    size_bytes: int
    next_offset: int


def walk(data: memoryview, offset: int) -> Walked:
    """Counts complete batches from an offset on; a broker may truncate the last one."""
    end = len(data)
    position = records = 0
    next_offset = offset
    while end - position >= HEADER_BYTES:
        base, length, _epoch, magic = BATCH_START.unpack_from(data, position)
        if end - position < length + LENGTH_EXCLUDES_BYTES:
            break
        (delta,) = INT32.unpack_from(data, position + LAST_OFFSET_DELTA_POSITION)
        if magic != MAGIC or not base <= next_offset <= base + delta:
            raise WrongData(f"a batch at offset {base} with magic {magic}, expected offset {next_offset}")
        records += base + delta + 1 - next_offset
        next_offset = base + delta + 1
        position += length + LENGTH_EXCLUDES_BYTES
    return Walked(records, position, next_offset)


class Cursor:
    """One connection that reads several partitions."""

    def __init__(self, job: Job, partitions: list[int]) -> None:
        host, _, port = job.address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.job = job
        self.topic_id = bytes.fromhex(job.topic_id)
        self.offsets = dict.fromkeys(partitions, 0)
        self.inbox = bytearray(job.fetch_bytes + len(partitions) * 1024 * 1024 + ANSWER_OVERHEAD_BYTES)
        self.view = memoryview(self.inbox)
        self.filled = 0
        self.wanted = 4
        self.correlation_id = 0
        self.asked_ns = 0

    def ask(self) -> None:
        """Sends the next request."""
        frame = fetch_request(self.topic_id, list(self.offsets.items()), self.job.fetch_bytes)
        self.correlation_id += 1
        INT32.pack_into(frame, CORRELATION_POSITION, self.correlation_id)
        self.asked_ns = time.monotonic_ns()
        self.socket.sendall(frame)

    def receive(self) -> memoryview | None:
        """The response once it is complete, otherwise None."""
        count = self.socket.recv_into(self.view[self.filled : self.wanted] if self.filled >= 4 else self.view)
        if not count:
            raise WrongData("the broker has closed the connection")
        self.filled += count
        if self.wanted == 4 and self.filled >= 4:
            self.wanted = 4 + INT32.unpack_from(self.inbox, 0)[0]
            if self.wanted > len(self.inbox):
                raise WrongData(f"an answer of {self.wanted} bytes, {len(self.inbox)} are the most that was asked for")
        if self.filled < self.wanted or self.filled < 4:
            return None
        frame = self.view[4 : self.wanted]
        self.filled, self.wanted = 0, 4
        return frame

    def take(self, frame: memoryview) -> tuple[int, int, bool]:
        """Records and bytes in a response, and whether all its partitions are read to their ends."""
        header, position = read_response_header(Api.FETCH, FETCH_VERSION, frame)
        if header.correlation_id != self.correlation_id:
            raise WrongData(f"answer {header.correlation_id} came, {self.correlation_id} was awaited")
        answer = decode(FetchResponse, FETCH_VERSION, frame, position)
        records = size_bytes = 0
        is_at_end = True
        for topic in answer.responses:
            for part in topic.partitions:
                if part.error_code is not ErrorCode.NONE:
                    raise WrongData(f"the broker answered with {part.error_code.name}")
                offset = self.offsets[part.partition_index]
                walked = walk(memoryview(part.records or b""), offset)
                records += walked.records
                size_bytes += walked.size_bytes
                at_end = walked.next_offset >= part.high_watermark
                is_at_end &= at_end
                begins_anew = at_end and not self.job.is_replay and not self.job.settings.get("tails")
                self.offsets[part.partition_index] = 0 if begins_anew else walked.next_offset
        return records, size_bytes, is_at_end


def run(job: Job) -> dict[str, object]:
    """Reads until the window ends, or until the replay is complete."""
    parts = [list(range(number, job.partitions, job.connections)) for number in range(job.connections)]
    cursors = {}
    poll = select.epoll()
    for partitions in parts:
        cursor = Cursor(job, partitions)
        cursors[cursor.socket.fileno()] = cursor
        poll.register(cursor.socket.fileno(), select.EPOLLIN)
    window = told_window()
    begin_ns, end_ns = int(window.begin_s * 1e9), int(window.end_s * 1e9)
    if job.is_replay:
        time.sleep(max(0.0, window.begin_s - time.monotonic()))
    latencies = array("q")
    records = size_bytes = all_records = 0
    cpu_begin_s = time.process_time() if job.is_replay else None
    for cursor in cursors.values():
        cursor.ask()
    left = set(cursors)
    now_ns = time.monotonic_ns()
    while left and now_ns < end_ns:
        for descriptor, _ in poll.poll(1.0):
            cursor = cursors[descriptor]
            frame = cursor.receive()
            if frame is None:
                continue
            now_ns = time.monotonic_ns()
            if cpu_begin_s is None and now_ns >= begin_ns:
                cpu_begin_s = time.process_time()
            found, found_bytes, is_at_end = cursor.take(frame)
            all_records += found
            if begin_ns <= now_ns < end_ns:
                records += found
                size_bytes += found_bytes
                latencies.append(now_ns - cursor.asked_ns)
            if job.is_replay and is_at_end:
                left.discard(descriptor)
            else:
                cursor.ask()
        now_ns = time.monotonic_ns()
    seconds = (min(now_ns, end_ns) - begin_ns) / 1e9
    used_s = time.process_time() - (cpu_begin_s or 0.0)
    return {
        "records": records,
        "value_bytes": records * job.record_bytes,
        "batch_bytes": size_bytes,
        "requests": len(latencies),
        "read": all_records,
        "seconds": seconds,
        "cpu": used_s / seconds,
        "answer_ms": percentiles(latencies),
    }


if __name__ == "__main__":
    print(json.dumps(run(Job.from_json(sys.argv[1]))))
