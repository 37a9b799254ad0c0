"""Records that are hard to carry, in scenes. A scene is a list of batches; offsets rise from 0 through all of them."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product

from penstock.records.builder import BatchBuilder
from penstock.records.compression import Codec
from penstock.records.header import NO_TIMESTAMP
from penstock.records.rows import Headers, Record

NOW_MS = 1_760_000_000_000
LARGE_BYTES = 900_000
# The most extreme timestamps whose difference still fits in 64 bits.
TIMESTAMP_MS_MAX = 2**62
# Topic settings that neither reject these timestamps, nor roll segments because of them, nor delete the records.
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1), "segment.ms": str(2**62), "retention.ms": "-1"}
EVERY_BYTE = bytes(range(256))

Batch = Sequence[Record]
Scene = Sequence[Batch]
Entry = tuple[bytes | None, bytes | None, Headers, int]


def _scene(batches: Iterable[Iterable[Entry]]) -> Scene:
    offset = 0
    scene = []
    for entries in batches:
        batch = []
        for key, value, headers, timestamp_ms in entries:
            batch.append(Record(offset, timestamp_ms, key, value, headers))
            offset += 1
        scene.append(batch)
    return scene


def _blobs() -> Scene:
    blobs = (None, b"", EVERY_BYTE, "ключ 🔑".encode(), b"x")
    return _scene([[(key, value, (), NOW_MS) for key, value in product(blobs, blobs)]])


def _headers() -> Scene:
    sets: list[Headers] = [
        (),
        (("plain", b"value"),),
        (("", b""),),
        (("null", None),),
        (("twice", b"first"), ("between", None), ("twice", b"second"), ("twice", b"second")),
        (("größe 尺寸 📏", EVERY_BYTE), ("n" * 200, b"v" * 200)),
        tuple((f"h{number}", bytes([number])) for number in range(100)),
    ]
    return _scene(
        [[(b"k", b"v", headers, NOW_MS) for headers in sets], [(None, None, headers, NOW_MS) for headers in sets]]
    )


def _timestamps() -> Scene:
    alone = (0, NO_TIMESTAMP, -5, 1, NOW_MS, 253_402_300_799_999, TIMESTAMP_MS_MAX, -TIMESTAMP_MS_MAX)
    mixed = (NOW_MS, 0, NOW_MS + 1, NO_TIMESTAMP, NOW_MS - 64, -NOW_MS, TIMESTAMP_MS_MAX)
    batches = [*([timestamp_ms] for timestamp_ms in alone), mixed]
    return _scene([[(b"k", None, (), timestamp_ms) for timestamp_ms in batch] for batch in batches])


def _single() -> Scene:
    return _scene([[(None, None, (), NOW_MS)], [(b"key", b"value", (("h", b"v"),), NOW_MS)]])


def _thousand() -> Scene:
    draw = random.Random("a thousand records")

    def entry(number: int) -> Entry:
        key = draw.choice((None, b"", f"key-{number % 50}".encode()))
        value = draw.choice((None, draw.randbytes(draw.randrange(80)), b"again and again " * draw.randrange(12)))
        headers = tuple((f"h{each}", draw.choice((None, b"", b"v"))) for each in range(draw.randrange(3)))
        return key, value, headers, NOW_MS + draw.randrange(-5000, 5000)

    return _scene([[entry(number) for number in range(1000)]])


def _large() -> Scene:
    draw = random.Random("large records")
    values = (draw.randbytes(LARGE_BYTES), b"squeeze me " * (LARGE_BYTES // 11))
    return _scene([[(b"large", value, (), NOW_MS)] for value in values])


SCENES: Mapping[str, Scene] = {
    "blobs": _blobs(),
    "headers": _headers(),
    "timestamps": _timestamps(),
    "single": _single(),
    "thousand": _thousand(),
    "large": _large(),
}


def records_of(scene: Scene) -> list[Record]:
    """All records of a scene."""
    return [record for batch in scene for record in batch]


def only(scene: Scene, accepts: Callable[[Record], bool]) -> list[Record]:
    """The records that a client accepts, with offsets as if there were no others."""
    kept = filter(accepts, records_of(scene))
    return [record._replace(offset=offset) for offset, record in enumerate(kept)]


def build(batch: Batch, codec: Codec) -> bytearray:
    """The batch as a producer sends it."""
    builder = BatchBuilder(codec=codec)
    for record in batch:
        builder.append(record.key, record.value, record.headers, record.timestamp_ms)
    return builder.build()
