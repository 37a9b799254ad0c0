"""The bare limit: a minimal loop that stores and serves batches without being a broker.

One process, one loop, no protocol: it reads the batch at a fixed position of a Produce request, checks its CRC, writes
it to the partition's file and answers with a pre-encoded frame; with `--sync` only after the file is on stable storage,
with one sync for all batches that arrived together. For a Fetch request it sends a piece of the file by sendfile.
Everything that a broker does beyond that serves its users.

    python -m benchmarks.side_by_side.bare DIRECTORY PARTITIONS BATCH_BYTES BATCH_RECORDS TOPIC_ID [--sync]
"""

import os
import select
import socket
import struct
import sys
from pathlib import Path

from crc32c import crc32c

from benchmarks.side_by_side.frames import (
    CORRELATION_POSITION,
    FETCH_OFFSET_POSITION,
    FETCH_PARTITION_POSITION,
    INT32,
    INT64,
    PRODUCE_PARTITION_POSITION,
    fetch_answer_around,
    produce_answer,
)

INBOX_BYTES = 8 * 1024 * 1024
SLICE_BYTES = 4 * 1024 * 1024
PRODUCE = 0
CRC_POSITION = 17
CRC_COVERS_FROM = 21
_START = struct.Struct(">ih")
_CRC = struct.Struct(">I")


class Bare:
    """See the module."""

    def __init__(self, directory: Path, partitions: int, batch: tuple[int, int], topic_id: bytes, sync: bool) -> None:
        self.batch_bytes, self.batch_records = batch
        self.topic_id = topic_id
        self.sync = sync
        flags = os.O_RDWR | os.O_CREAT
        self.files = [os.open(directory / f"{number}.log", flags) for number in range(partitions)]
        self.ends = [0] * partitions
        self.answer = produce_answer(topic_id)
        self.unsynced: set[int] = set()

    def append(self, frame: memoryview) -> bytes:
        """Checks and writes a batch; returns the response."""
        (partition,) = INT32.unpack_from(frame, PRODUCE_PARTITION_POSITION)
        begin = len(frame) - self.batch_bytes - TAIL_BYTES
        batch = frame[begin : begin + self.batch_bytes]
        (crc,) = _CRC.unpack_from(batch, CRC_POSITION)
        if crc32c(batch[CRC_COVERS_FROM:]) != crc:
            raise ValueError("the checksum does not fit")
        INT64.pack_into(batch, 0, self.ends[partition])
        self.ends[partition] += self.batch_records
        os.write(self.files[partition], batch)
        if self.sync:
            self.unsynced.add(self.files[partition])
        self.answer[4:8] = frame[CORRELATION_POSITION : CORRELATION_POSITION + 4]
        return bytes(self.answer)

    def commit(self) -> None:
        """Syncs every file once for all batches that arrived together."""
        for descriptor in self.unsynced:
            os.fdatasync(descriptor)
        self.unsynced.clear()

    def send_slice(self, frame: memoryview, connection: socket.socket) -> None:
        """Sends a piece of the file, whole batches only."""
        (partition,) = INT32.unpack_from(frame, FETCH_PARTITION_POSITION)
        (offset,) = INT64.unpack_from(frame, FETCH_OFFSET_POSITION)
        position = offset // self.batch_records * self.batch_bytes
        left = self.ends[partition] // self.batch_records * self.batch_bytes - position
        size = min(left, SLICE_BYTES // self.batch_bytes * self.batch_bytes)
        head, tail = fetch_answer_head(self.topic_id, partition, size, self.ends[partition])
        connection.setblocking(True)
        answer = bytearray(head)
        answer[4:8] = frame[CORRELATION_POSITION : CORRELATION_POSITION + 4]
        connection.sendall(answer, socket.MSG_MORE)
        while size:
            sent = os.sendfile(connection.fileno(), self.files[partition], position, size)
            position += sent
            size -= sent
        connection.sendall(tail)
        connection.setblocking(False)


TAIL_BYTES = 3
"""Bytes after the batch in a request: three empty lists of tagged fields."""

_heads: dict[tuple[int, int, int], tuple[bytes, bytes]] = {}


def fetch_answer_head(topic_id: bytes, partition: int, size: int, end: int) -> tuple[bytes, bytes]:
    """The bytes around the records, encoded once for each partition, size and end offset."""
    key = (partition, size, end)
    if key not in _heads:
        _heads[key] = fetch_answer_around(topic_id, partition, size, end)
    return _heads[key]


class Inbox:
    """Received bytes of a connection that are not a complete frame yet."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.data = bytearray(INBOX_BYTES)
        self.view = memoryview(self.data)
        self.filled = 0


def serve(bare: Bare) -> None:
    """Serves connections forever; prints the port first."""
    place = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(place.getsockname()[1], flush=True)
    poll = select.epoll()
    poll.register(place.fileno(), select.EPOLLIN)
    inboxes: dict[int, Inbox] = {}
    while True:
        answers: list[tuple[socket.socket, list[bytes]]] = []
        for descriptor, _ in poll.poll():
            if descriptor == place.fileno():
                connection, _ = place.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setblocking(False)
                inboxes[connection.fileno()] = Inbox(connection)
                poll.register(connection.fileno(), select.EPOLLIN)
                continue
            inbox = inboxes[descriptor]
            try:
                if made := _frames(bare, inbox):
                    answers.append((inbox.connection, made))
            except ConnectionError:  # the load has disconnected
                poll.unregister(descriptor)
                inboxes.pop(descriptor).connection.close()
        if bare.sync:
            bare.commit()
        for connection, made in answers:
            connection.sendall(b"".join(made))


def _frames(bare: Bare, inbox: Inbox) -> list[bytes]:
    count = inbox.connection.recv_into(inbox.view[inbox.filled :])
    if not count:
        raise ConnectionResetError
    inbox.filled += count
    answers = []
    position, filled = 0, inbox.filled
    while filled - position >= 6:
        size, key = _START.unpack_from(inbox.data, position)
        end = position + 4 + size
        if end > filled:
            break
        frame = inbox.view[position:end]
        if key == PRODUCE:
            answers.append(bare.append(frame))
        else:
            bare.send_slice(frame, inbox.connection)
        position = end
    if position:
        inbox.view[: filled - position] = inbox.view[position:filled]
        inbox.filled = filled - position
    return answers


if __name__ == "__main__":
    folder, count, size, records, topic = sys.argv[1:6]
    serve(Bare(Path(folder), int(count), (int(size), int(records)), bytes.fromhex(topic), "--sync" in sys.argv))
