"""Checks a history of 1 million records with 3 full readers, from its lines on disk to the report.

Another process writes the history, so that the peak memory of this one is that of reading and checking alone.
python -m benchmarks.micro.bench_verify [--records 1000000] [--per-send 20] [--per-poll 500] [--transactions]
"""

import argparse
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path

from penstock.verify.check import check_lines
from penstock.verify.history import read_history
from penstock.verify.recorder import Recorder

PARTITIONS = 16
PRODUCERS = 8
READERS = 3
SECONDS_MAX = 10.0
PEAK_MB_MAX = 1024


def write_history(path: Path, records: int, per_send: int, per_poll: int, is_transactional: bool) -> None:
    """Writes a history: producers send in turn, round-robin over partitions; readers read all partitions together."""
    ends = [0] * PARTITIONS
    logs: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]
    with path.open("w") as file:
        recorder = Recorder(time.monotonic_ns, file.write)
        sent = 0
        while sent < records:
            producer = (sent // per_send) % PRODUCERS
            values = range(sent, min(sent + per_send, records))
            sent = values.stop
            rows = [(f"orders-{value % PARTITIONS}", value) for value in values]
            placed = []
            for partition, value in rows:
                number = value % PARTITIONS
                logs[number].append((ends[number], value))
                placed.append((partition, ends[number], value))
                ends[number] += 1
            if is_transactional:
                operation = recorder.invoke(producer, "txn", [["send", name, None, value] for name, value in rows])
                operation.ok([["send", *place] for place in placed])
                for number in {value % PARTITIONS for value in values}:
                    ends[number] += 1
            else:
                recorder.invoke(producer, "send", [[name, None, value] for name, value in rows]).ok(placed)
        for reader in range(READERS):
            process = f"reader-{reader}"
            recorder.invoke(process, "assign").ok([[f"orders-{number}", 0] for number in range(PARTITIONS)])
            position = 0
            share = max(1, per_poll // PARTITIONS)
            while position < max(map(len, logs)):
                found = [
                    (f"orders-{number}", offset, value)
                    for number, log in enumerate(logs)
                    for offset, value in log[position : position + share]
                ]
                recorder.invoke(process, "poll").ok(found)
                position += share


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--per-send", type=int, default=20)
    parser.add_argument("--per-poll", type=int, default=500)
    parser.add_argument(
        "--transactions", action="store_true", help="every send is a transaction, with markers behind it"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.jsonl"
        arguments = (path, asked.records, asked.per_send, asked.per_poll, asked.transactions)
        writer = multiprocessing.Process(target=write_history, args=arguments)
        writer.start()
        writer.join()
        size_mb = path.stat().st_size / 1e6
        with path.open() as file:
            started_s = time.process_time()
            for _ in read_history(file):
                pass
            read_s = time.process_time() - started_s
        with path.open() as file:
            started_s, clock_started_s = time.process_time(), time.perf_counter()
            report = check_lines(file)
            both_s, clock_s = time.process_time() - started_s, time.perf_counter() - clock_started_s
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(report.text())
    print(f"history of {size_mb:,.0f} MB, {asked.records:,} records x {READERS} readers")
    print(f"  reading lines alone        {read_s:6.2f} s of one core")
    print(f"  reading and all checks     {both_s:6.2f} s of one core   limit {SECONDS_MAX:.0f} s")
    print(f"  the same by the clock      {clock_s:6.2f} s")
    print(f"  peak memory                {peak_mb:6.0f} MB            limit {PEAK_MB_MAX} MB")
    print("  ok" if report.is_clean and both_s <= SECONDS_MAX and peak_mb <= PEAK_MB_MAX else "  MISSED")


if __name__ == "__main__":
    main()
