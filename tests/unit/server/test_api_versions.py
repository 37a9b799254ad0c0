"""ApiVersions: every version, unknown versions, and the fields that clients read."""

import struct
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.server.settings import Feature
from penstock.wire.api import Api
from penstock.wire.codec import decode
from penstock.wire.headers import read_response_header, request_frame
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.unit.server.conftest import Drive
from tests.unit.server.shell import LENGTH, Peer, Place, Script, plain

ASKED: dict[str, Any] = {"client_software_name": "a-client", "client_software_version": "1.2.3"}


async def ask(peer: Peer, version: int, **asked: str) -> ApiVersionsResponse:
    request = ApiVersionsRequest(**(ASKED | asked))
    await peer.send(bytes(request_frame(request, version, 42, "me")))
    return await answer(peer, version)


async def answer(peer: Peer, version: int) -> ApiVersionsResponse:
    frame = await peer.receive()
    assert frame is not None
    header, position = read_response_header(Api.API_VERSIONS, version, memoryview(frame))
    assert header.correlation_id == 42
    return decode(ApiVersionsResponse, version, frame, position)


def keys(response: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}


SERVED = {
    Api.PRODUCE: (0, 13),
    Api.FETCH: (4, 18),
    Api.LIST_OFFSETS: (1, 11),
    Api.OFFSET_COMMIT: (2, 10),
    Api.API_VERSIONS: (0, 4),
}


@pytest.mark.parametrize("version", range(5))
def test_every_version_tells_what_is_served_with_produce_from_version_0(drive: Drive, version: int) -> None:
    async def story(place: Place) -> None:
        response = await ask(await place.connect(), version)
        assert response.error_code == ErrorCode.NONE
        assert keys(response) == SERVED
        assert list(keys(response)) == sorted(SERVED)
        assert (response.finalized_features_epoch, response.finalized_features) == (-1, ())
        connections = list(place.node.listeners.doors["PLAINTEXT"][0])
        assert [str(each.client.software_name) for each in connections if each.client] == [
            "a-client" if version >= 3 else "unknown"
        ]

    drive(story)


@pytest.mark.parametrize("version", [5, 9, 32767, -1])
def test_an_unknown_version_is_answered_in_the_form_of_version_0_and_the_client_goes_on(
    drive: Drive, version: int
) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        frame = struct.pack(">hhih", 18, version, 42, 2) + b"me" + b"whatever comes then"
        await peer.send(LENGTH.pack(len(frame)) + frame)
        response = await answer(peer, 0)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert keys(response) == SERVED
        assert (await ask(peer, 4)).error_code == ErrorCode.NONE
        await peer.send(plain(1))
        assert await peer.answers(1) == [1]

    drive(story)


@pytest.mark.parametrize("name", ["", "two words", "-dash", "dot.", "x\n"])
def test_a_software_name_that_is_none_is_refused(drive: Drive, name: str) -> None:
    async def story(place: Place) -> None:
        peer = await place.connect()
        assert (await ask(peer, 3, client_software_name=name)).error_code == ErrorCode.INVALID_REQUEST
        assert (await ask(peer, 3, client_software_version=name)).error_code == ErrorCode.INVALID_REQUEST
        assert (await ask(peer, 2, client_software_version=name)).error_code == ErrorCode.NONE

    drive(story)


def test_features_are_told_from_version_3_on_and_level_0_only_from_4_on(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Script, "handlers", lambda _script: None)  # the broker's own handlers, which know the features

    async def story(place: Place) -> None:
        peer = await place.connect()
        assert (await ask(peer, 2)).supported_features == ()
        for version, least in ((3, 1), (4, 0)):
            response = await ask(peer, version)
            assert [(f.name, f.min_version, f.max_version) for f in response.supported_features] == [
                ("transaction.version", least, 2),
                ("group.version", least, 1),
            ]
            assert [(f.name, f.min_version_level, f.max_version_level) for f in response.finalized_features] == [
                ("transaction.version", 2, 2)
            ]
            assert response.finalized_features_epoch > 0

    drive(story, features=(Feature("transaction.version", 0, 2, 2), Feature("group.version", 0, 1, 0)))
