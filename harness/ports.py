"""Free local ports for nodes that are started, killed and restarted."""

import random
import socket

PORTS = range(20_000, 32_000)
"""Below the ephemeral range that outgoing connections use."""
_taken: list[socket.socket] = []


def free_port(*, is_kept: bool = True) -> int:
    """A port without a listener, reserved while the node that uses it is down.

    The reservation lasts as long as this process: without it, clients of a restarting node may reach a node of another
    cluster, to which another test gave the same port, and write to its topics. Pass `is_kept=False` for a command that
    itself checks whether a port is free.
    """
    while True:
        port = random.choice(PORTS)
        probe = socket.socket()
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            probe.close()
            continue
        if is_kept:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # listeners that set it, too, may bind
            _taken.append(probe)
        else:
            probe.close()
        return port
