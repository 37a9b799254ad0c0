"""Regressions of the compiled reader."""

from penstock.wire.codec import decode, encode
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest


def test_an_array_of_uuids_is_read() -> None:
    """Elements used to get the layout of the array that holds them, and so were read as no bytes at all."""
    request = BrokerHeartbeatRequest(
        broker_id=1,
        current_metadata_offset=7,
        want_fence=False,
        want_shut_down=True,
        offline_log_dirs=[b"0123456789abcdef", bytes(16)],
        cordoned_log_dirs=[],
    )
    assert decode(BrokerHeartbeatRequest, 2, encode(request, 2)) == request
