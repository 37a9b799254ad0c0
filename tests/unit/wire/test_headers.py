"""Every message gets the right header version."""

import pytest

from penstock.model.errors import ErrorCode, MalformedMessage
from penstock.wire.api import Api, api_for, request_class, response_class
from penstock.wire.codec import decode
from penstock.wire.headers import (
    read_request_header,
    read_response_header,
    read_start,
    request_frame,
    request_header_version,
    response_frame,
    response_header_version,
)
from penstock.wire.messages.api_versions import ApiVersionsResponse
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@pytest.mark.parametrize(("version", "header_version"), [(3, 1), (4, 2)])
def test_a_request_survives_the_journey(version: int, header_version: int) -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None)
    assert request_header_version(HeartbeatRequest, version) == header_version
    frame = memoryview(request_frame(request, version, 42, "cliënt"))[4:]
    assert read_start(frame) == (12, version, 42)
    header, body = read_request_header(Api.HEARTBEAT, version, frame)
    assert (header.correlation_id, header.client_id) == (42, "cliënt")
    assert decode(HeartbeatRequest, version, frame, body) == request


@pytest.mark.parametrize("version", [0, 4])
def test_a_response_survives_the_journey(version: int) -> None:
    response = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    frame = memoryview(response_frame(response, version, 7))[4:]
    header, body = read_response_header(Api.HEARTBEAT, version, frame)
    assert header.correlation_id == 7
    assert decode(HeartbeatResponse, version, frame, body) == response


def test_api_versions_is_always_answered_in_the_first_header() -> None:
    for version in ApiVersionsResponse.VERSIONS:
        assert response_header_version(ApiVersionsResponse, version) == 0


def test_every_api_has_a_request_and_a_response_of_the_same_versions() -> None:
    for api in Api:
        request, response = request_class(api), response_class(api)
        assert request.KEY == response.KEY == api
        assert (request.VERSIONS, request.FLEXIBLE) == (response.VERSIONS, response.FLEXIBLE)


def test_unknown_keys_and_short_frames_are_refused() -> None:
    from penstock.model.errors import UnsupportedVersion

    with pytest.raises(UnsupportedVersion):
        api_for(4)
    with pytest.raises(MalformedMessage):
        read_start(memoryview(b"1234567"))
