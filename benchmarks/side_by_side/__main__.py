"""Penstock beside Apache Kafka and beside the bare limit, on one machine, under the same load.

python -m benchmarks.side_by_side --rows produce-1,small --rounds 1 --seconds 3 --warm 5
"""

import argparse
import sys
import time
from pathlib import Path

from benchmarks.side_by_side.loads import Conditions, Figures
from benchmarks.side_by_side.machine import Cores, divided_cores
from benchmarks.side_by_side.rows import CONTENDERS, ROWS
from benchmarks.side_by_side.running import Plan, run_rows


def main() -> None:
    options = _parser().parse_args()
    names = _chosen(options.rows, ROWS, "row") or list(ROWS)
    only = tuple(_chosen(options.only, CONTENDERS, "contender"))
    cores = divided_cores()
    cores = Cores(options.broker_cpus or cores.broker, options.load_cpus or cores.load)
    conditions = Conditions(cores, options.seconds, options.lead)
    plan = Plan(conditions, options.rounds, options.warm, only, options.data, options.py_spy)
    begun_s = time.monotonic()
    print(HEAD, flush=True)
    run_rows([ROWS[name] for name in names], plan, tell)
    print(f"took {time.monotonic() - begun_s:.0f} s")


HEAD = (
    f"{'row':<12} {'contender':<20} {'MB/s':>8} {'records/s':>11} {'requests/s':>10} {'ack p50':>8} {'p99':>8} "
    f"{'cpu':>5} {'s/GB':>6} {'load':>5} {'others':>6} {'RSS MB':>7}"
)


def tell(row: str, contender: str, number: int, found: Figures) -> None:
    """One line for each round, as it comes."""
    del number
    ack = found.get("ack_ms") or found.get("answer_ms") or {}
    shown = [f"{ack[share]:8.2f}" if ack.get(share) is not None else f"{'–':>8}" for share in ("p50", "p99")]
    print(
        f"{row:<12} {contender:<20} {found['mb_s']:8.1f} {found['records_s']:11,.0f} {found['requests_s']:10,.0f} "
        f"{' '.join(shown)} {found['broker_cpu']:5.0%} {found['cpu_s_per_gb']:6.2f} {found['load_cpu']:5.0%} "
        f"{found['others_cpu']:6.0%} {found['rss_end_mb']:7.0f}{'  the load is the limit' * found['load_is_limit']}",
        flush=True,
    )


def _chosen(text: str, known: object, what: str) -> list[str]:
    names = [each for each in text.split(",") if each]
    for name in names:
        if name not in known:  # type: ignore[operator]
            sys.exit(f"there is no {what} {name}: choose from {', '.join(known)}")  # type: ignore[arg-type]
    return names


def _cpus(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.side_by_side",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", default="", help=f"of {', '.join(ROWS)}; all if not given")
    parser.add_argument("--only", default="", help=f"contenders, of {', '.join(CONTENDERS)}; all if not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="measured in each round")
    parser.add_argument("--lead", type=float, default=1.0, help="seconds under load before a round is measured")
    parser.add_argument("--warm", type=float, default=60.0, help="seconds under each row's load before its first round")
    parser.add_argument("--broker-cpus", type=_cpus, help="cores of the brokers, such as 0,1; half of all if not given")
    parser.add_argument("--load-cpus", type=_cpus, help="cores of the load; the other half if not given")
    parser.add_argument("--data", type=Path, help="where brokers keep their data; a temporary directory if not given")
    parser.add_argument("--py-spy", type=Path, metavar="FOLDER", help="profile Penstock's rounds into this folder")
    return parser


if __name__ == "__main__":
    main()
