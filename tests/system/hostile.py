"""A hostile client: `python -m tests.system.hostile HOST PORT SLOW BAD SECONDS`.

Opens slow connections that send a frame byte by byte and never finish it, reports that they are open, and then opens
bad ones, evenly spread over the time: frames of 2 GiB, arrays and tagged fields of 2³¹ elements. The node must close
each of the bad ones at once.
"""

import itertools
import os
import socket
import struct
import sys
import time

HEADER = struct.pack(">hhih", 18, 3, 1, 2) + b"me"
BODIES = [
    HEADER + b"\x00" + b"\xff\xff\xff\xff\x07" + bytes(8),  # a string of 2 GiB
    HEADER + b"\xff\xff\xff\xff\x07" + bytes(8),  # 2^31 tagged fields in the header
    HEADER + b"\x00" + b"\x02a\x02a" + b"\xff\xff\xff\xff\x0f",  # 2^32 in the body
    struct.pack(">hhih", 3, 12, 1, 2) + b"me\x00" + b"\xff\xff\xff\xff\x07",  # 2^31 topics
    struct.pack(">hhih", 1, 17, 1, 2) + b"me\x00" + bytes(21) + b"\xff\xff\xff\xff\x07" + bytes(8),
]
BAD = [struct.pack(">i", 2**31 - 1) + bytes(100), *(struct.pack(">i", len(body)) + body for body in BODIES)]
SLOW = struct.pack(">i", 60 * 1024 * 1024) + struct.pack(">hhih", 0, 9, 1, 2) + b"me\x00"


def main(host: str, port: int, slow: int, bad: int, seconds: float) -> None:
    os.nice(19)  # it stands for other machines: it must not take the node's CPU time
    half_open = []
    for _ in range(slow):
        connection = socket.create_connection((host, port))
        connection.sendall(SLOW)
        half_open.append(connection)
    print("slow ones are here", flush=True)
    sys.stdin.readline()
    began, survivors = time.monotonic(), 0
    waiting: list[socket.socket] = []
    trickle = itertools.cycle(half_open)
    for number in range(bad):
        connection = socket.create_connection((host, port))
        connection.sendall(BAD[number % len(BAD)])
        waiting.append(connection)
        if half_open:
            next(trickle).sendall(b"x")
        if len(waiting) > 20:
            survivors += not is_closed(waiting.pop(0))
        time.sleep(max(0.0, began + (number + 1) * seconds / bad - time.monotonic()))
    survivors += sum(not is_closed(each) for each in waiting)
    print(survivors, flush=True)
    sys.stdin.readline()


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(10)
    try:
        return connection.recv(1000) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    port, slow, bad = map(int, sys.argv[2:5])
    main(sys.argv[1], port, slow, bad, float(sys.argv[5]))
