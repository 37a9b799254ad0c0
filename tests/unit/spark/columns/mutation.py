"""Random batches, and mutations with a valid checksum, as a hostile producer would send them."""

import random

from penstock.records.builder import BatchBuilder
from penstock.records.compression import Codec
from penstock.records.header import HEADER_BYTES, TimestampType, seal

HEADERS = (
    (),
    (),
    (("trace", b"0af7651916cd43dd"),),
    (("empty", b""), ("null", None), ("", b"nameless"), ("größe", b"\xff")),
    (("not utf-8: \udcff", b"x"),),
)


def random_batch(dice: random.Random, base_offset: int, codec: Codec | None = None) -> bytearray:
    """Builds a batch as a producer might have written it, or compaction left it."""
    builder = BatchBuilder(
        codec=dice.choice(list(Codec)) if codec is None else codec,
        base_offset=base_offset,
        timestamp_type=dice.choice(list(TimestampType)),
    )
    delta = dice.choice((0, 0, 5))
    for _ in range(dice.choice((0, 1, 2, 3, 9))):
        key, value = (dice.choice((None, b"", dice.randbytes(dice.choice((1, 7, 63, 64, 130))))) for _ in "kv")
        timestamp_ms = 1_700_000_000_000 + dice.choice((0, 1, -1, 70, -5_000, 2**40))
        builder.append(key, value, dice.choice(HEADERS), timestamp_ms, delta)
        delta += dice.choice((1, 1, 1, 2, 90, 2**20))
    return builder.build(last_offset_delta=max(delta, 1))


def mutate(dice: random.Random, batch: bytearray) -> bytearray:
    """Changes, removes or inserts some bytes, and makes length and checksum valid again."""
    for _ in range(dice.randint(1, 3)):
        # Kernels read the payload, and count, deltas and timestamps of the header.
        place = dice.randrange(HEADER_BYTES, len(batch)) if dice.random() < 0.9 and len(batch) > HEADER_BYTES else 0
        match dice.choice(("set", "flip", "extreme", "cut", "insert", "header")):
            case "header":
                batch[dice.choice((22, 23, 24, 26, 27, 34, 35, 42, 57, 60))] = dice.randrange(256)
            case _ if not place:
                pass
            case "set":
                batch[place] = dice.randrange(256)
            case "flip":
                batch[place] ^= 1 << dice.randrange(8)
            case "extreme":
                number = dice.choice(
                    (b"\x01", b"\x03", b"\xfe\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01")
                )
                batch[place : place + dice.choice((1, len(number)))] = number
            case "cut":
                del batch[place : place + dice.randint(1, 9)]
            case "insert":
                batch[place:place] = dice.randbytes(dice.randint(1, 9))
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    seal(batch)
    return batch
