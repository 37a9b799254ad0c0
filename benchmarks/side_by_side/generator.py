"""A load of pre-encoded Produce requests, as many as the broker accepts: a tight loop over non-blocking sockets.

A request costs only the patch of its correlation id. Requests that one connection may send at the same time are sent
with one call, as soon as responses have made room for them. Every response is checked: its correlation id, and that it
reports no error.
"""

import json
import select
import socket
import struct
import sys
import time
from array import array
from collections import deque

from benchmarks.side_by_side.frames import (
    ANSWER_CORRELATION_POSITION,
    CORRELATION_POSITION,
    INT32,
    PRODUCE_ANSWER_ERROR_POSITION,
    produce_request,
)
from benchmarks.side_by_side.jobs import Job, percentiles, told_window
from benchmarks.side_by_side.payload import batch_of

DRAIN_S = 30.0
ANSWER_BYTES = 64 * 1024
CONNECTIONS_AT_ONCE = 100
CONNECT_PAUSE_S = 0.002
"""Penstock refuses more than 1,000 new connections in a second."""
_ANSWER_START = struct.Struct(">ii")
_ERROR = struct.Struct(">h")


class WrongAnswer(Exception):
    """The broker reported an error, or sent an unexpected response."""


class Pipe:
    """One connection that keeps several requests in flight."""

    def __init__(self, address: str, frames: list[bytearray], in_flight: int, requests_max: int = sys.maxsize) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.frame_bytes = len(frames[0])
        assert all(len(frame) == self.frame_bytes for frame in frames)
        self.ring = bytearray().join(frames)
        self.ring_view = memoryview(self.ring)
        self.ring_frames = len(frames)
        self.next_frame = 0
        self.in_flight = in_flight
        self.requests_left = requests_max
        self.correlation_id = 0
        self.answered_id = 0
        self.outgoing = memoryview(b"")
        self.sent_ns: deque[int] = deque()
        self.inbox = bytearray(ANSWER_BYTES)
        self.inbox_view = memoryview(self.inbox)
        self.inbox_filled = 0

    def begin_requests(self, now_ns: int) -> None:
        """Fills `outgoing`, which must be empty, with as many requests as may be in flight."""
        room = min(self.in_flight - len(self.sent_ns), self.ring_frames - self.next_frame, self.requests_left)
        if room <= 0:
            return
        self.requests_left -= room
        begin = self.next_frame * self.frame_bytes
        position = begin + CORRELATION_POSITION
        for _ in range(room):
            INT32.pack_into(self.ring, position, self.correlation_id)
            self.correlation_id = (self.correlation_id + 1) & 0x7FFFFFFF
            position += self.frame_bytes
            self.sent_ns.append(now_ns)
        self.outgoing = self.ring_view[begin : begin + room * self.frame_bytes]
        self.next_frame = (self.next_frame + room) % self.ring_frames

    def send(self) -> bool:
        """Sends as much as the socket accepts; returns whether everything was sent."""
        while self.outgoing:
            try:
                count = self.socket.send(self.outgoing)
            except BlockingIOError:
                return False
            self.outgoing = self.outgoing[count:]
        return True

    def receive(self) -> int:
        """Receives and checks responses; returns their number."""
        count = self.socket.recv_into(self.inbox_view[self.inbox_filled :])
        if not count:
            raise WrongAnswer("the broker has closed the connection")
        filled = self.inbox_filled + count
        inbox = self.inbox
        position = answers = 0
        while filled - position >= 8:
            size, correlation_id = _ANSWER_START.unpack_from(inbox, position)
            if filled - position < size + 4:
                break
            if correlation_id != self.answered_id:
                raise WrongAnswer(f"answer {correlation_id} came, {self.answered_id} was awaited")
            (error,) = _ERROR.unpack_from(inbox, position + PRODUCE_ANSWER_ERROR_POSITION)
            if error:
                raise WrongAnswer(f"the broker answered with error {error}")
            self.answered_id = (correlation_id + 1) & 0x7FFFFFFF
            position += size + 4
            answers += 1
        if position:
            self.inbox[: filled - position] = inbox[position:filled]
        self.inbox_filled = filled - position
        return answers


assert INT32.size == ANSWER_CORRELATION_POSITION  # _ANSWER_START reads both at once


def run(job: Job) -> dict[str, object]:
    """Runs until the window ends or all requests are sent, then until every response has arrived."""
    batch = batch_of(job)
    pipes = {}
    poll = select.epoll()
    for number in range(job.connections):
        address, share, place = job.at_place(number)
        frames = [produce_request(topic_id, each, batch.data) for topic_id, each in _places(share, place)]
        pipe = Pipe(address, frames, job.in_flight, job.requests_max // job.connections or sys.maxsize)
        pipes[pipe.socket.fileno()] = pipe
        poll.register(pipe.socket.fileno(), select.EPOLLIN)
        if job.connections > CONNECTIONS_AT_ONCE:
            time.sleep(CONNECT_PAUSE_S)
    window = told_window()
    begin_ns, end_ns = int(window.begin_s * 1e9), int(window.end_s * 1e9)
    latencies = array("q")
    answered = counted = 0
    cpu_begin_s = cpu_end_s = None
    clock = time.monotonic_ns
    now_ns = clock()
    for pipe in pipes.values():
        _keep_busy(pipe, poll, now_ns)
    waiting = True
    while waiting:
        events = poll.poll(1.0)
        now_ns = clock()
        if cpu_begin_s is None and now_ns >= begin_ns:
            cpu_begin_s = time.process_time()
        is_over = now_ns >= end_ns or (job.requests_max and not any(pipe.requests_left for pipe in pipes.values()))
        if cpu_end_s is None and is_over:
            cpu_end_s = time.process_time()
        is_counted = begin_ns <= now_ns < end_ns
        for descriptor, event in events:
            pipe = pipes[descriptor]
            if event & select.EPOLLIN:
                answers = pipe.receive()
                answered += answers
                sent_ns = pipe.sent_ns
                if is_counted:
                    counted += answers
                    for _ in range(answers):
                        latencies.append(now_ns - sent_ns.popleft())
                else:
                    for _ in range(answers):
                        sent_ns.popleft()
            if not is_over:
                _keep_busy(pipe, poll, now_ns)
            elif pipe.outgoing and pipe.send():
                poll.modify(descriptor, select.EPOLLIN)
        if is_over:
            waiting = any(pipe.sent_ns for pipe in pipes.values())
            if now_ns > end_ns + DRAIN_S * 1e9:
                raise WrongAnswer(f"answers are missing {DRAIN_S:.0f} s after the end")
    return {
        "records": counted * batch.records,
        "value_bytes": counted * batch.value_bytes,
        "batch_bytes": counted * len(batch.data),
        "requests": counted,
        "acknowledged": answered * batch.records,
        "cpu": ((cpu_end_s or 0) - (cpu_begin_s or 0)) / window.seconds,
        "ack_ms": percentiles(latencies),
    }


def _places(job: Job, connection: int) -> list[tuple[bytes, int]]:
    """The partitions to which a connection writes in turn: one of its own, a share, or (`spreads`) all of them."""
    topics = [bytes.fromhex(each) for each in job.settings.get("topic_ids", (job.topic_id,))]
    every = [(topic_id, partition) for topic_id in topics for partition in range(job.partitions)]
    if len(every) <= job.connections:
        return [every[connection % len(every)]] * job.in_flight
    if job.settings.get("spreads"):
        begin = connection * 7 % len(every)
        return every[begin:] + every[:begin]
    return every[connection :: job.connections]


def _keep_busy(pipe: Pipe, poll: select.epoll, now_ns: int) -> None:
    was_stuck = bool(pipe.outgoing)
    while True:
        if not pipe.outgoing:
            pipe.begin_requests(now_ns)
            if not pipe.outgoing:
                break
        if not pipe.send():
            if not was_stuck:
                poll.modify(pipe.socket.fileno(), select.EPOLLIN | select.EPOLLOUT)
            return
    if was_stuck:
        poll.modify(pipe.socket.fileno(), select.EPOLLIN)


if __name__ == "__main__":
    print(json.dumps(run(Job.from_json(sys.argv[1]))))
