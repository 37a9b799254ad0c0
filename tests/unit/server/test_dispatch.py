"""The handler table, and the fast header parser compared with the compiled one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ProtocolError
from penstock.server.connections.dispatch import NO_BODY, Dispatch
from penstock.server.handlers.cluster.api_versions import ApiVersionsHandler
from penstock.wire.api import Api
from penstock.wire.codec import write_into
from penstock.wire.headers import read_request_header, request_header_version
from penstock.wire.messages.header import RequestHeader
from tests.unit.server.shell import NothingFinalized, Script

DISPATCH = Dispatch(Script().handlers())
SERVED = [(route.api, version) for route in DISPATCH.routes.values() for version in range(route.first, route.last + 1)]


@given(
    st.sampled_from(SERVED), st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=40), st.binary(max_size=9)
)
def test_headers_read_as_the_compiled_reader_reads_them(
    served: tuple[Api, int], correlation_id: int, client_id: str | None, body: bytes
) -> None:
    api, version = served
    header = RequestHeader(
        request_api_key=api, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    out = bytearray()
    write_into(out, header, request_header_version(DISPATCH.routes[api].request, version))
    end = len(out)
    out += body
    opened = DISPATCH.open(memoryview(out))
    assert opened == (DISPATCH.routes[api], version, correlation_id, client_id, end)


@given(st.sampled_from(SERVED), st.binary(max_size=40))
def test_whatever_comes_both_readers_say_the_same(served: tuple[Api, int], rest: bytes) -> None:
    api, version = served
    frame = memoryview(int(api).to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + rest)
    try:
        header, end = read_request_header(api, version, frame)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            DISPATCH.open(frame)
    else:
        opened = DISPATCH.open(frame)
        assert (opened.client_id, opened.position) == (header.client_id, end)


@pytest.mark.parametrize("version", [-1, 5, 6, 32767])
def test_an_unknown_version_of_api_versions_has_no_body(version: int) -> None:
    frame = (18).to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + (77).to_bytes(4, "big") + b"\x80\x00"
    opened = DISPATCH.open(memoryview(frame))
    assert (opened.correlation_id, opened.version, opened.position) == (77, version, NO_BODY)


class Holder:
    """An object that holds a handler and one of its bound methods."""

    def __init__(self, handler: ApiVersionsHandler) -> None:
        self.handler = handler
        self.api_versions = handler.api_versions


def test_two_handlers_of_one_api_are_refused() -> None:
    handler = ApiVersionsHandler((), NothingFinalized())
    assert list(Dispatch([Holder(handler)]).routes) == [], "what a handler merely holds is not its own"
    with pytest.raises(AssertionError, match="two handlers serve ApiVersions"):
        Dispatch([handler, handler])
