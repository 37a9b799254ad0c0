"""Ends kafka-python clients that were left running, as after a time-out while they started or closed.

Such a client would try forever to reach a node that is gone, and its leftovers would fail later tests.
"""

import gc
import socket
import sys
import threading


def end_left_clients() -> None:
    """Closes all clients if the thread of one still runs, and those of their sockets that could not connect."""
    net = sys.modules.get("kafka.net.compat")
    if net is None or not any(thread.name.startswith("kafka-io-") for thread in threading.enumerate()):
        return
    for each in gc.get_objects():
        if isinstance(each, net.KafkaNetClient):
            each.close()
    for each in gc.get_objects():
        if isinstance(each, socket.socket) and _is_refused(each):
            each.close()


def _is_refused(each: socket.socket) -> bool:
    """Whether the socket could not connect. kafka-python does not close it; it is bound to no address."""
    if each.fileno() == -1 or each.family is not socket.AF_INET or each.type is not socket.SOCK_STREAM:
        return False
    is_listening = each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    return each.getsockname()[0] == "0.0.0.0" and not is_listening
