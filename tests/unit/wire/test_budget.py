"""Request budgets: the charge bounds the allocation, and a request over budget is refused before it is decoded."""

import time
import tracemalloc
from collections.abc import Iterator

import pytest

from penstock.model.errors import ProtocolError, RequestTooCostly
from penstock.model.limits import DEFAULT_LIMITS
from penstock.wire.api import Api, request_class
from penstock.wire.budget import Budget, request_budget
from penstock.wire.codec import budgeted_reader_for, decode_request
from penstock.wire.declare import Request
from penstock.wire.headers import read_request_header
from penstock.wire.hot.produce import read_produce
from penstock.wire.messages.produce import ProduceRequest
from tests.apart import apart
from tests.costly import costly, uvarint

MIB = 1024 * 1024
SMALL = Budget(elements=1_000, memory_bytes=64 * 1024)
ONE_STRING_BYTES = 2 * 4 * 32 * 1024
"""A string is charged after it was read: one string above the budget may exist for a moment."""


def shapes() -> Iterator[tuple[type[Request], int]]:
    for api in Api:
        request = request_class(api)
        for version in request.VERSIONS:
            yield request, version


@pytest.mark.parametrize("api", list(Api), ids=lambda api: api.title)
def test_whatever_is_within_the_budget_takes_no_more_memory_than_that(api: Api) -> None:
    """The budget is an upper bound of the memory that decoding allocates, for the densest request of each kind."""
    for peak, bytes_max, what in apart(allocated, api):
        assert peak <= bytes_max, what


def allocated(api: Api) -> list[tuple[int, int, str]]:
    """Returns the peak memory of decoding the densest requests, its bound, and the request's name."""
    request, found = request_class(api), []
    for version in {request.VERSIONS.first, request.VERSIONS.last}:
        budgeted_reader_for(request, version)  # compilation is not measured
        for case in costly(request, version):
            size = 8 * 1024
            while size > 64:
                body = case.body(size)
                tracemalloc.start()
                try:
                    message = decode_request(request, version, body, 0, SMALL)
                except RequestTooCostly:
                    message = None
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
                blobs = len(body) if "large" in case.name else 0
                bytes_max = SMALL.memory_bytes + ONE_STRING_BYTES + blobs
                found.append((peak, bytes_max, f"{case.name} of version {version}, {size} bytes"))
                if message is not None:
                    break
                size //= 2
    return found


@pytest.mark.parametrize("api", list(Api), ids=lambda api: api.title)
def test_a_body_that_is_decoded_without_counting_is_within_the_budget_whatever_it_holds(api: Api) -> None:
    request = request_class(api)
    for version in {request.VERSIONS.first, request.VERSIONS.last}:
        for case in costly(request, version):
            body = case.body(DEFAULT_LIMITS.request_small_bytes_max)
            decode_request(request, version, body, 0, request_budget())


def test_millions_of_elements_are_refused_at_once() -> None:
    """The ten bytes before the elements hold their number."""
    for request, version in shapes():
        for case in costly(request, version):
            if ": " not in case.name or case.name.endswith(("long", "large", "names")):
                continue
            body = case.body(64 * 1024)
            began = time.thread_time()
            with pytest.raises(RequestTooCostly, match="than is allowed"):
                decode_request(request, version, body, 0, Budget(1_000, 8 * MIB))
            assert time.thread_time() - began < 0.05, f"{request.__name__} v{version} {case.name}"


def test_a_wide_string_costs_four_times_its_bytes() -> None:
    request = request_class(Api.METADATA)
    (case,) = [each for each in costly(request, 12) if each.name == "topics: long names"]
    body = case.body(3 * MIB)
    with pytest.raises(RequestTooCostly, match="takes more memory"):
        decode_request(request, 12, body, 0, request_budget())
    decode_request(request, 12, body, 0, Budget(1000, 13 * MIB))


def test_unknown_tagged_fields_of_a_header_are_counted() -> None:
    head = bytes((0, 3, 0, 12)) + bytes(4) + b"\xff\xff"
    few = memoryview(head + b"\x02" + b"\x63\x00" * 2 + b"body")
    assert read_request_header(Api.METADATA, 12, few)[1] == len(few) - 4
    many = memoryview(head + uvarint(1_000_000) + b"\x63\x00" * 1_000_000)
    began = time.thread_time()
    with pytest.raises(RequestTooCostly):
        read_request_header(Api.METADATA, 12, many)
    assert time.thread_time() - began < 0.05


@pytest.mark.parametrize("version", list(ProduceRequest.VERSIONS))
def test_produce_requests_of_too_many_partitions_are_refused_at_once(version: int) -> None:
    for took_s, peak, what in apart(refusals, version):
        assert took_s < 0.5, what
        assert peak < 8 * MIB, what


def refusals(version: int) -> list[tuple[float, int, str]]:
    """Returns the seconds and the peak bytes that refusing each request takes."""
    found = []
    for case in costly(ProduceRequest, version):
        if case.name.endswith(("long", "large")):
            continue
        body = memoryview(case.body(2 * MIB))
        tracemalloc.start()
        began = time.thread_time()
        with pytest.raises(RequestTooCostly, match="more than 10,000 topics, partitions and tagged fields"):
            read_produce(version, body, 0)
        took_s = time.thread_time() - began
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        found.append((took_s, peak, case.name))
    return found


def test_a_produce_request_of_as_many_partitions_as_are_allowed_is_read() -> None:
    part = bytes(4) + b"\x01\x00"
    body = b"\x00" + bytes(6) + b"\x02\x02a" + uvarint(10_000) + part * 9_999 + b"\x00\x00"
    assert len(read_produce(9, memoryview(body), 0).parts) == 9_999
    with pytest.raises(RequestTooCostly):
        read_produce(9, memoryview(body), 0, 5_000)


def test_what_is_over_budget_is_told_with_the_budget() -> None:
    (case,) = [each for each in costly(request_class(Api.METADATA), 12) if each.name == "topics: empty"]
    with pytest.raises(ProtocolError, match=r"MetadataRequest v12: topics: .* \(10 elements, 1,000 bytes of memory\)"):
        decode_request(request_class(Api.METADATA), 12, case.body(1000), 0, Budget(10, 1_000))
