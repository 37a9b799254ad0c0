"""The cost of a batch on the produce path, and of a record that must be decoded.

The produce path is compared with the minimum: the checksum and two stores, without checks or a view.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from struct import pack_into

from crc32c import crc32c

from penstock.records.builder import BatchBuilder
from penstock.records.check import DEFAULT_RULES, Rules, Validation, check_batch
from penstock.records.compression import Codec, compress, decompress
from penstock.records.header import BatchView, patch
from penstock.records.rows import rows

NOW_MS = 1_700_000_000_000
RECORDS = 1_000
CAP_BYTES = 10 * 1024 * 1024


def build(codec: Codec = Codec.NONE) -> bytearray:
    """A batch of 1,000 records of 100 bytes, as in the design pages."""
    builder = BatchBuilder(codec=codec)
    for number in range(RECORDS):
        builder.append(b"key-%05d" % number, VALUE, (), NOW_MS + number)
    return builder.build()


VALUE = (b'{"sensor": "pump-17", "pressure_kpa": 412.7, "flow": 88.1, "ok": true} ' * 2)[:100]


def best_s(work: Callable[[], object], budget_s: float, repeats: int) -> float:
    """The shortest time of one call: a shared machine only adds time."""
    best = float("inf")
    deadline_s = time.perf_counter() + budget_s
    while time.perf_counter() < deadline_s:
        started_s = time.perf_counter()
        for _ in range(repeats):
            work()
        best = min(best, (time.perf_counter() - started_s) / repeats)
    return best


def bare(buffer: bytearray, view: memoryview) -> None:
    crc32c(view[21:])
    pack_into(">q", buffer, 0, 0)
    pack_into(">i", buffer, 12, 7)


def ours(buffer: bytearray, view: memoryview) -> None:
    check_batch(view, DEFAULT_RULES, NOW_MS)
    patch(buffer, 0, 7)


def read(buffer: bytearray) -> int:
    return sum(1 for _ in rows(BatchView(buffer), CAP_BYTES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.7, help="time for each figure")
    budget_s = parser.parse_args().seconds

    buffer = build()
    view = memoryview(buffer)
    floor_s = best_s(lambda: bare(buffer, view), budget_s, 500)
    ours_s = best_s(lambda: ours(buffer, view), budget_s, 500)
    print(f"batch of {len(buffer):,} bytes, {RECORDS:,} records, without compression")
    print(f"  checksum and two stores      {floor_s * 1e6:8.2f} µs")
    print(f"  view, all checks and patch   {ours_s * 1e6:8.2f} µs   {ours_s / floor_s:.2f} x")
    print(f"    = {len(buffer) / ours_s / 1e9:.1f} GB/s, {RECORDS / ours_s / 1e6:.0f} M records/s")
    print(f"  view alone                   {best_s(lambda: BatchView(view), budget_s, 5000) * 1e6:8.2f} µs")

    small = BatchBuilder()
    small.append(b"key", VALUE, (), NOW_MS)
    one = small.build()
    one_view = memoryview(one)
    floor_s = best_s(lambda: bare(one, one_view), budget_s, 2000)
    ours_s = best_s(lambda: ours(one, one_view), budget_s, 2000)
    print(f"batch of {len(one)} bytes, one record")
    print(f"  checksum and two stores      {floor_s * 1e6:8.2f} µs")
    print(f"  view, all checks and patch   {ours_s * 1e6:8.2f} µs   {ours_s / floor_s:.2f} x")

    print(
        f"{'records opened, M/s':22} {'build':>8} {'rows':>8} {'full check':>10} {'pack MB/s':>10} {'unpack MB/s':>12}"
    )
    plain = bytes(BatchView(buffer).payload)
    full = Rules(validation=Validation.FULL)
    for codec in Codec:
        packed = build(codec)
        payload = compress(codec, plain)
        rates = [
            RECORDS / best_s(partial(build, codec), budget_s, 1) / 1e6,
            RECORDS / best_s(partial(read, packed), budget_s, 1) / 1e6,
            RECORDS / best_s(partial(check_batch, packed, full, NOW_MS), budget_s, 1) / 1e6,
            len(plain) / best_s(partial(compress, codec, plain), budget_s / 2, 1) / 1e6,
            len(plain) / best_s(partial(decompress, codec, payload, CAP_BYTES), budget_s / 2, 1) / 1e6,
        ]
        print(f"  {codec.name:20} {rates[0]:8.2f} {rates[1]:8.2f} {rates[2]:10.2f} {rates[3]:10.0f} {rates[4]:12.0f}")


if __name__ == "__main__":
    main()
