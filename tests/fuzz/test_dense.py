"""A frame as long as it may be before login costs no more than any other input, however many objects it asks for."""

import pytest

from penstock.wire.api import Api, request_class
from penstock.wire.codec import decode
from tests.fuzz.dense import FRAME_BYTES, dense_requests
from tests.fuzz.guard import Target

GROWTH_MAX = 64


@pytest.mark.parametrize("api", Api, ids=lambda api: api.name)
def test_the_densest_request_stays_within_bounds(api: Api) -> None:
    kind = request_class(api)
    for version, name, body in dense_requests(kind):

        def read(data: bytes, version: int = version) -> None:
            decode(kind, version, data)

        target = Target("dense", read)
        target(body)
        assert len(body) > FRAME_BYTES - 200
        assert target.growth_max_bytes <= GROWTH_MAX * FRAME_BYTES, f"{name} in version {version}"
