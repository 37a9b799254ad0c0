"""Inputs that create the most objects: requests full of their smallest elements, batches of their smallest records.

A fuzzer's inputs are short; these have the maximum length. `python tests/fuzz/dense.py` prints their cost.
"""

import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from penstock.model.limits import DEFAULT_LIMITS
from penstock.records.check import Rules, check_batch
from penstock.records.compression import Codec, compress
from penstock.records.header import HEADER, HEADER_BYTES, LENGTH_EXCLUDES_BYTES, MAGIC, seal
from penstock.wire.api import Api, request_class
from penstock.wire.codec import decode, encode
from penstock.wire.declare import Array, Request, Struct
from penstock.wire.types import Blob, Fixed, Text

FRAME_BYTES = DEFAULT_LIMITS.frame_before_login_bytes_max
REPEATS = 3
# Length, attributes, two deltas, an empty key, an empty value, no headers.
SMALLEST_RECORD = bytes((12, 0, 0, 0, 0, 0, 0))


def dense_requests(kind: type[Request]) -> Iterator[tuple[int, str, bytes]]:
    """For every array of the first and last version: the body that is full of its elements."""
    for version in sorted({kind.VERSIONS.first, kind.VERSIONS.last}):
        for field in kind.FIELDS:
            if version not in field.versions or not isinstance(field.type, Array):
                continue
            item = _smallest(field.type.item, version)
            one, two = (len(encode(_filled(kind, version, **{field.name: [item] * n}), version)) for n in (1, 2))
            count = (FRAME_BYTES - one) // (two - one)
            yield version, field.name, bytes(encode(_filled(kind, version, **{field.name: [item] * count}), version))


def dense_batch(codec: Codec, decompressed_bytes: int) -> bytes:
    """A valid batch of as many records as fit."""
    count = decompressed_bytes // len(SMALLEST_RECORD)
    payload = compress(codec, SMALLEST_RECORD * count)
    length = HEADER_BYTES - LENGTH_EXCLUDES_BYTES + len(payload)
    batch = bytearray(HEADER.pack(0, length, -1, MAGIC, 0, codec, count - 1, 0, 0, -1, -1, -1, count))
    batch += payload
    seal(batch)
    return bytes(batch)


def _filled(kind: type[Struct], version: int, **given: Any) -> Any:
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
    return _filled(kind, version)


def _processor_ms(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return (time.process_time() - start) * 1000


def main() -> None:
    """Prints the cost of the densest inputs."""
    costs = []
    for api in Api:
        kind = request_class(api)
        for version, name, body in dense_requests(kind):
            took_ms = min(_processor_ms(lambda: decode(kind, version, body)) for _ in range(REPEATS))  # noqa: B023
            tracemalloc.start()
            decode(kind, version, body)
            peak_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            costs.append((peak_bytes / len(body), took_ms, f"{kind.__name__} v{version}, {name}"))
    growth, _, who = max(costs)
    print(f"requests of {FRAME_BYTES // 1024} KiB: at most {growth:.0f} times the frame in memory ({who})")
    _, took_ms, who = max(costs, key=lambda cost: cost[1])
    print(f"requests of {FRAME_BYTES // 1024} KiB: at most {took_ms:.0f} ms ({who})")
    for codec, decompressed_bytes in (
        (Codec.NONE, DEFAULT_LIMITS.batch_bytes_max - HEADER_BYTES),
        *((codec, DEFAULT_LIMITS.batch_decompressed_bytes_max) for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD)),
    ):
        batch = dense_batch(codec, decompressed_bytes)
        took_ms = min(_processor_ms(lambda: check_batch(batch, Rules(is_compacted=True))) for _ in range(REPEATS))  # noqa: B023
        print(f"a batch of {len(batch):,} bytes, {codec.name}, opened for a compacted topic: {took_ms:.0f} ms")


if __name__ == "__main__":
    main()
