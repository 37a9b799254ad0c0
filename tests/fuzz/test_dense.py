"""The most objects that bytes can ask for: every array of every request, filled with its smallest elements.

A fuzzer's inputs are short; here a frame is as long as it may be before login. What it costs is bounded as for any
other input, and memory by a small multiple of the frame.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.fuzz.guard import Target

from penstock.model.limits import DEFAULT_LIMITS
from penstock.wire.api import Api, request_class
from penstock.wire.codec import decode, encode
from penstock.wire.declare import Array, Field, Struct
from penstock.wire.types import Blob, Fixed, Text

FRAME_BYTES = DEFAULT_LIMITS.frame_before_login_bytes_max
GROWTH_MAX = 64


def smallest(kind: type[Struct], version: int, **given: Any) -> Any:
    fields = [f for f in kind.FIELDS if version in f.versions and f.tag is None]
    values = {f.name: None if version in f.nullable else _smallest(f.type, version) for f in fields}
    return kind(**{**values, **given})


def _smallest(kind: Any, version: int) -> Any:
    match kind:
        case Fixed(name="uuid"):
            return bytes(16)
        case Fixed():
            return 0
        case Text():
            return ""
        case Blob():
            return b""
        case Array():
            return ()
    return smallest(kind, version)


def dense_bodies(api: Api) -> Iterator[tuple[int, Field, bytes]]:
    kind = request_class(api)
    for version in sorted({kind.VERSIONS.first, kind.VERSIONS.last}):
        for field in kind.FIELDS:
            if version not in field.versions or not isinstance(field.type, Array):
                continue
            item = _smallest(field.type.item, version)
            one, two = (len(encode(smallest(kind, version, **{field.name: [item] * n}), version)) for n in (1, 2))
            count = (FRAME_BYTES - one) // (two - one)
            yield version, field, bytes(encode(smallest(kind, version, **{field.name: [item] * count}), version))


@pytest.mark.parametrize("api", Api, ids=lambda api: api.name)
def test_the_densest_request_stays_within_bounds(api: Api) -> None:
    kind = request_class(api)
    for version, field, body in dense_bodies(api):

        def read(data: bytes, version: int = version) -> None:
            decode(kind, version, data)

        target = Target("dense", read)
        target(body)
        assert len(body) > FRAME_BYTES - 200
        assert target.growth_max_bytes <= GROWTH_MAX * FRAME_BYTES, f"{field.name} in version {version}"
