"""A load at a fixed rate, independent of the broker: requests are due at fixed times and are sent then.

Latency counts from the time at which a request was due, so a stalled broker is charged for every request that had to
wait meanwhile. With `follows`, separate connections wait for the records by long polls, and the time from due to read
is reported as well. The lateness of the load itself is reported, too: a latency below it means nothing. So the load
runs with real-time priority, because other processes may use its core.
"""

import contextlib
import json
import os
import select
import socket
import sys
import time
from array import array
from collections import deque

from benchmarks.side_by_side.frames import INT32, produce_request
from benchmarks.side_by_side.generator import DRAIN_S, Pipe, WrongAnswer
from benchmarks.side_by_side.jobs import FOLLOWERS, Job, percentiles, told_window
from benchmarks.side_by_side.payload import batch_of
from benchmarks.side_by_side.reader import Cursor

SPIN_NS = 150_000
"""Time before a due request in which the load spins instead of sleeping: the kernel wakes sleepers late."""


class PacedPipe(Pipe):
    """A connection that sends requests one by one, with a backlog for those that the socket does not accept."""

    def __init__(self, address: str, frame: bytearray) -> None:
        super().__init__(address, [frame], 1)
        self.backlog: deque[bytes] = deque()

    def post(self, due_ns: int) -> None:
        """Sends one request now."""
        INT32.pack_into(self.ring, 8, self.correlation_id)
        self.correlation_id = (self.correlation_id + 1) & 0x7FFFFFFF
        self.sent_ns.append(due_ns)
        if not self.outgoing and not self.backlog:
            self.outgoing = memoryview(bytes(self.ring))
        else:
            self.backlog.append(bytes(self.ring))
        self.push()

    def push(self) -> None:
        """Sends the backlog, as far as the socket accepts it."""
        while self.send():
            if not self.backlog:
                return
            self.outgoing = memoryview(self.backlog.popleft())


class Paced:
    """The paced load."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.batch = batch_of(job)
        assert not job.follows or self.batch.records == 1, "an offset must be a request"
        self.pipes = []
        for number in range(job.connections):
            address, share, place = job.at_place(number)
            topic_id = bytes.fromhex(share.topic_id)
            frame = produce_request(topic_id, place % job.partitions, self.batch.data)
            self.pipes.append(PacedPipe(address, frame))
        self.due_ns: list[array[int]] = [array("q") for _ in range(job.partitions)]
        assert not job.follows or job.partitions == job.connections, "a partition must have one writer"
        readers = min(FOLLOWERS, job.partitions) if job.follows else 0
        tailing = Job.from_json(json.dumps(json.loads(job.to_json()) | {"settings": {"tails": True}}))
        self.cursors = [Cursor(tailing, list(range(n, job.partitions, readers))) for n in range(readers)]
        self.begin_ns = self.end_ns = 0
        self.acks, self.ends, self.lateness = array("q"), array("q"), array("q")
        self.answered = self.counted = self.read = 0

    def run(self) -> dict[str, object]:
        """Sends and receives until all requests are answered (and all records read)."""
        by_descriptor: dict[socket.socket, PacedPipe | Cursor] = {}
        by_descriptor.update((pipe.socket, pipe) for pipe in self.pipes)
        by_descriptor.update((cursor.socket, cursor) for cursor in self.cursors)
        everyone = list(by_descriptor)
        window = told_window()
        self.begin_ns, self.end_ns = int(window.begin_s * 1e9), int(window.end_s * 1e9)
        for cursor in self.cursors:
            cursor.ask()
        interval_ns = 1e9 / self.job.rate
        begun_ns = time.monotonic_ns()
        posted = 0
        next_due_ns = begun_ns
        cpu_begin_s = time.process_time()
        while True:
            now_ns = time.monotonic_ns()
            while next_due_ns <= now_ns and next_due_ns < self.end_ns:
                number = posted % len(self.pipes)
                if self.job.follows:
                    self.due_ns[number].append(next_due_ns)
                if next_due_ns >= self.begin_ns:
                    self.lateness.append(now_ns - next_due_ns)
                self.pipes[number].post(next_due_ns)
                posted += 1
                next_due_ns = begun_ns + int(posted * interval_ns)
                now_ns = time.monotonic_ns()
            if next_due_ns >= self.end_ns:
                if self.answered == posted and (not self.job.follows or self.read == posted):
                    break
                if now_ns > self.end_ns + DRAIN_S * 1e9:
                    raise WrongAnswer(f"{posted} requests, {self.answered} answers, {self.read} records read")
            stuck = [pipe.socket for pipe in self.pipes if pipe.outgoing]
            wait_s = 0.1 if next_due_ns >= self.end_ns else max(0, next_due_ns - now_ns - SPIN_NS) / 1e9
            readable, writable, _ = select.select(everyone, stuck, (), wait_s)
            for each in readable:
                found = by_descriptor[each]
                if isinstance(found, Cursor):
                    self._read(found)
                else:
                    self._take_answers(found)
            for each in writable:
                found = by_descriptor[each]
                assert isinstance(found, PacedPipe)
                found.push()
        seconds = (time.monotonic_ns() - begun_ns) / 1e9
        return {
            "records": self.counted * self.batch.records,
            "value_bytes": self.counted * self.batch.value_bytes,
            "batch_bytes": self.counted * len(self.batch.data),
            "requests": self.counted,
            "acknowledged": self.answered * self.batch.records,
            "cpu": (time.process_time() - cpu_begin_s) / seconds,
            "ack_ms": percentiles(self.acks),
            "end_to_end_ms": percentiles(self.ends) if self.job.follows else None,
            "lateness_ms": percentiles(self.lateness),
        }

    def _take_answers(self, pipe: PacedPipe) -> None:
        answers = pipe.receive()
        now_ns = time.monotonic_ns()
        self.answered += answers
        for _ in range(answers):
            due_ns = pipe.sent_ns.popleft()
            if self.begin_ns <= due_ns < self.end_ns:
                self.acks.append(now_ns - due_ns)
                self.counted += 1

    def _read(self, cursor: Cursor) -> None:
        frame = cursor.receive()
        if frame is None:
            return
        now_ns = time.monotonic_ns()
        before = dict(cursor.offsets)
        records, _, _ = cursor.take(frame)
        self.read += records
        cursor.ask()
        for partition, offset in cursor.offsets.items():
            for due_ns in self.due_ns[partition][before[partition] : offset]:
                if self.begin_ns <= due_ns < self.end_ns:
                    self.ends.append(now_ns - due_ns)


if __name__ == "__main__":
    with contextlib.suppress(PermissionError):  # then the lateness shows it
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    print(json.dumps(Paced(Job.from_json(sys.argv[1])).run()))
