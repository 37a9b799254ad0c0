"""The values that loads send: the same for every broker, from a fixed seed."""

import json
import random

from benchmarks.side_by_side.frames import Batch, fill_batch
from benchmarks.side_by_side.jobs import Job

KINDS_MAX = 1000
KINDS_BYTES_MAX = 4_000_000
WORDS = ("amsterdam", "berlin", "cairo", "delhi", "edinburgh", "florence", "geneva", "hamburg", "istanbul", "jakarta")


def values(kind: str, record_bytes: int) -> list[bytes]:
    """Distinct values of exactly this size, or `mixed` around it; too many for repeats in a codec's window."""
    draw = random.Random(7)
    count = max(1, min(KINDS_MAX, KINDS_BYTES_MAX // record_bytes))
    if kind == "random":
        return [draw.randbytes(record_bytes) for _ in range(count)]
    if kind == "mixed":
        return [draw.randbytes(draw.randint(record_bytes // 2, record_bytes * 3 // 2)) for _ in range(count)]
    return [_document(draw, number, record_bytes) for number in range(count)]


def batch_of(job: Job) -> Batch:
    """The batch that a load sends."""
    return fill_batch(values(job.values, job.record_bytes), job.batch_bytes, job.kind_of_codec)


def _document(draw: random.Random, number: int, size: int) -> bytes:
    order = {
        "order_id": f"{draw.getrandbits(64):016x}",
        "number": number,
        "customer": f"customer-{draw.randrange(100_000)}",
        "city": draw.choice(WORDS),
        "created_at": f"2026-01-{draw.randrange(1, 29):02}T{draw.randrange(24):02}:{draw.randrange(60):02}:00Z",
        "items": [],
        "note": "",
    }
    items: list[dict[str, object]] = []
    order["items"] = items
    while len(json.dumps(order)) < size - 120:
        items.append(
            {
                "sku": f"{draw.getrandbits(32):08x}",
                "count": draw.randrange(1, 9),
                "price": draw.randrange(1, 99_999) / 100,
            }
        )
    order["note"] = "x" * max(0, size - len(json.dumps(order)))
    return json.dumps(order).encode()[:size].ljust(size)
