"""The client id that a broker receives."""

import socket
import struct
import threading

import pytest

from penstock.client.errors import ClientError
from penstock.spark.link import connect
from penstock.spark.options import stream_options

DEADLINE_S = 20


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"groupidprefix": "team"}, b"team"),
        ({"kafka.group.id": "readers"}, b"readers"),
        ({"kafka.client.id": "x"}, b"x"),
    ],
)
def test_a_group_names_the_client_to_the_broker(options: dict[str, str], name: bytes) -> None:
    heard: list[bytes] = []

    def listen() -> None:
        connection, _ = server.accept()
        with connection:
            connection.settimeout(DEADLINE_S)
            heard.append(connection.recv(4096))
            server.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE_S)
        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        asked = stream_options({"kafka.bootstrap.servers": address, "subscribe": "orders", **options})
        with pytest.raises(ClientError), connect(asked) as client:
            client.run(client.admin.cluster.refresh(["orders"], timeout_ms=1000))
        listener.join(DEADLINE_S)
    (length,) = struct.unpack_from(">h", heard[0], 12)  # after size, API, version and correlation id
    assert heard[0][14 : 14 + length] == name
