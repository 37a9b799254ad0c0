"""The cost of decoding record batches into finished Arrow arrays, on one core.

    python -m benchmarks.micro.bench_columns [--rounds 40] [--record]

Records have a value of 100 bytes and a key of 9. 65,536 of them, as a Fetch response may carry, are decoded into all
columns of Spark's Kafka connector. The cases take turns, and the best round of each counts: a shared machine only adds
time. `--record` writes docs/results/columns.md.
"""

import argparse
import datetime
import gc
import os
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from penstock.records.builder import BatchBuilder
from penstock.records.compression import Codec
from penstock.spark.columns import RecordRange
from penstock.spark.columns.compiled import CompiledColumns
from penstock.spark.columns.decoding import MakeColumns, stream
from penstock.spark.columns.loading import load
from penstock.spark.columns.plain import PlainColumns

NOW_MS = 1_700_000_000_000
RECORDS = 65_536
LARGE, SMALL = 1_024, 128
VALUE = (b'{"sensor": "pump-17", "pressure_kpa": 412.7, "flow": 88.1, "ok": true} ' * 2)[:100]
HEADERS = (("traceparent", b"0af7651916cd43dd8448eb211c80319c"), ("kind", b"reading"))
WANTED = RecordRange("readings", 3, 0, 2**62)
RECORDS_PER_SECOND_MIN = 10_000_000
RESULTS = Path(__file__).parents[2] / "docs" / "results"


class Case(NamedTuple):
    decoder: str
    work: str
    batch: str
    run: Callable[[], object]
    rounds_share: float = 1.0


def build(batch_records: int, headers: tuple[tuple[str, bytes], ...] = (), codec: Codec = Codec.NONE) -> bytes:
    """Consecutive batches, as in a Fetch response."""
    data = bytearray()
    for base_offset in range(0, RECORDS, batch_records):
        builder = BatchBuilder(base_offset=base_offset, codec=codec)
        for number in range(batch_records):
            builder.append(b"key-%05d" % number, VALUE, headers, NOW_MS + number)
        data += builder.build()
    return bytes(data)


def decode(data: bytes, make_columns: MakeColumns, *, has_headers: bool = False, checks_crc: bool = True) -> None:
    """Decodes all batches and drops each result at once, as Spark does."""
    wanted = WANTED._replace(has_headers=has_headers)
    rows = sum(table.num_rows for table in stream(data, wanted, checks_crc=checks_crc, make_columns=make_columns))
    assert rows == RECORDS


def cases() -> list[Case]:
    kernels = load()
    assert kernels is not None, "the fast decoder cannot be had here"
    compiled: MakeColumns = partial(CompiledColumns, kernels)
    large, small, with_headers = build(LARGE), build(SMALL), build(LARGE, HEADERS)
    name = f"{LARGE:,} records"
    found = [
        Case("plain", "checksum", name, partial(decode, large, PlainColumns), 0.2),
        Case("compiled", "neither", name, partial(decode, large, compiled, checks_crc=False)),
        Case("compiled", "checksum", name, partial(decode, large, compiled)),
        Case(
            "compiled",
            "two headers, left out",
            name,
            partial(decode, with_headers, compiled, checks_crc=False),
        ),
        Case(
            "compiled",
            "two headers",
            name,
            partial(decode, with_headers, compiled, has_headers=True, checks_crc=False),
        ),
        Case("compiled", "checksum, two headers", name, partial(decode, with_headers, compiled, has_headers=True)),
        Case("compiled", "neither", f"{SMALL} records", partial(decode, small, compiled, checks_crc=False)),
        Case("compiled", "checksum", f"{SMALL} records", partial(decode, small, compiled)),
    ]
    for codec in (Codec.LZ4, Codec.SNAPPY, Codec.ZSTD, Codec.GZIP):
        packed = build(LARGE, codec=codec)
        run = partial(decode, packed, compiled)
        found.append(Case("compiled", f"checksum, {codec.name.lower()}", name, run, 0.5))
    return found


def measure(found: list[Case], rounds: int) -> list[float]:
    """Seconds per call of each case."""
    best = [float("inf")] * len(found)
    for case in found:
        case.run()
    gc.disable()
    try:
        for number in range(rounds):
            for place, case in enumerate(found):
                if number >= max(3, rounds * case.rounds_share):
                    continue
                started_s = perf_counter()
                case.run()
                best[place] = min(best[place], perf_counter() - started_s)
    finally:
        gc.enable()
    return best


def lines(found: list[Case], best: list[float]) -> list[str]:
    rows = ["| Decoder | Besides the rows | Batches of | M records/s | ns a record |", "|---|---|---|--:|--:|"]
    for case, seconds in zip(found, best, strict=True):
        rate, nanoseconds = RECORDS / seconds / 1e6, seconds / RECORDS * 1e9
        rows.append(f"| {case.decoder} | {case.work} | {case.batch} | {rate:.1f} | {nanoseconds:.0f} |")
    return rows


def record(table: list[str], rounds: int, first_s: float) -> None:
    memory_gib = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    import numba
    import pyarrow

    versions = f"Python {platform.python_version()}, numba {numba.__version__}, pyarrow {pyarrow.__version__}"
    text = f"""# What records cost on their way into Arrow

65,536 records with a value of 100 bytes and a key of 9, in batches, into finished Arrow record batches with all
columns of Spark's Kafka connector, on one core. The cases take turns; of {rounds} rounds the best counts.

{chr(10).join(table)}

*Neither* is without checksum and without headers, and has a goal: 10 M records/s. Loading kernels that have been
compiled before took {first_s:.1f} s, import of Numba included; compiling them takes some seconds, once per machine.

`python -m benchmarks.micro.bench_columns --rounds {rounds} --record`, {datetime.date.today().isoformat()},
{versions}, Linux, {os.cpu_count()} shared cores, {memory_gib} GiB.
"""
    (RESULTS / "columns.md").write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    started_s = perf_counter()
    load()
    first_s = perf_counter() - started_s
    found = cases()
    best = measure(found, options.rounds)
    table = lines(found, best)
    print("\n".join(table))
    rate = RECORDS / best[1]
    print(f"goal {RECORDS_PER_SECOND_MIN:,} records/s: {'ok' if rate >= RECORDS_PER_SECOND_MIN else 'MISSED'}")
    if options.record:
        record(table, options.rounds, first_s)


if __name__ == "__main__":
    main()
