"""A frame of the maximum size before login costs no more than any other input, however many objects it creates."""

import pytest

from penstock.wire.api import Api, request_class
from penstock.wire.codec import decode
from tests.fuzz.dense import FRAME_BYTES, dense_requests
from tests.fuzz.guard import Target

GROWTH_MAX = 64
TRIES = 3
"""Another thread of the process may allocate meanwhile, which is not the request's fault."""


@pytest.mark.parametrize("api", Api, ids=lambda api: api.name)
def test_the_densest_request_stays_within_bounds(api: Api) -> None:
    kind = request_class(api)
    for version, name, body in dense_requests(kind):

        def read(data: bytes, version: int = version) -> None:
            decode(kind, version, data)

        assert len(body) > FRAME_BYTES - 200
        grew_bytes = []
        for _ in range(TRIES):
            target = Target("dense", read)
            target(body)
            grew_bytes.append(target.growth_max_bytes)
            if grew_bytes[-1] <= GROWTH_MAX * FRAME_BYTES:
                break
        assert min(grew_bytes) <= GROWTH_MAX * FRAME_BYTES, f"{name} in version {version}: {grew_bytes}"
