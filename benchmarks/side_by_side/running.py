"""Runs rows: brokers are started once, warmed up with each row's own load, and measured in turn in every round."""

import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from benchmarks.side_by_side.brokers import BareLimit, Broker, Kafka, Penstock
from benchmarks.side_by_side.loads import Conditions, Figures
from benchmarks.side_by_side.profiling import Profiler
from benchmarks.side_by_side.rows import CONTENDERS, Row
from benchmarks.side_by_side.trios import KafkaTrio, PenstockTrio

WARM_OTHERS_S_MAX = 5.0
"""For brokers without a JVM; only a JVM gets faster for a minute."""
WARM_AGAIN_S_MAX = 15.0
"""For a JVM after its first warm-up; each further load needs less."""

KINDS: Mapping[str, type[Broker]] = {each.name: each for each in (Penstock, Kafka, BareLimit, PenstockTrio, KafkaTrio)}


@dataclass(frozen=True, slots=True)
class Plan:
    """How rows are run."""

    conditions: Conditions
    rounds: int
    warm_s: float
    only: tuple[str, ...] = ()
    """Contenders to run; all if empty."""
    data: Path | None = None
    profile: Path | None = None

    def contenders(self, row: Row) -> list[str]:
        """The contenders of a row that take part."""
        return [each for each in row.contenders if not self.only or each in self.only]


Told = Callable[[str, str, int, Figures], None]


def run_rows(rows: Sequence[Row], plan: Plan, told: Told) -> Iterator[tuple[str, dict[str, Any], Plan]]:
    """Yields for each row its name, its rounds by contender with facts about the brokers, and the plan used."""
    for is_on_all_cores, some in groupby(rows, attrgetter("is_on_all_cores")):
        together = list(some)
        kinds = {CONTENDERS[name].broker for row in together for name in plan.contenders(row)}
        cores = plan.conditions.cores
        if is_on_all_cores:
            cores = cores._replace(broker=tuple(sorted({*cores.broker, *cores.load})))
        placed = replace(plan, conditions=replace(plan.conditions, cores=cores))
        with running(kinds, placed) as brokers:
            for row in together:
                yield row.name, run_row(row, brokers, placed, told), placed


@contextmanager
def running(kinds: "set[str]", plan: Plan) -> Iterator[Mapping[str, Broker]]:
    """Starts the brokers; SIGTERM to this process ends them, too."""
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix="side-by-side-", dir=plan.data) as folder, ExitStack() as held:
        made = [KINDS[kind](Path(folder) / kind, plan.conditions.cores.broker) for kind in sorted(kinds)]
        yield {each.name: held.enter_context(each) for each in made}


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def run_row(row: Row, brokers: Mapping[str, Broker], plan: Plan, told: Told) -> dict[str, Any]:
    """Warms and measures all contenders of one row."""
    work = row.work()
    names = plan.contenders(row)
    found: dict[str, list[Figures]] = {name: [] for name in names}
    try:
        for name in names:
            _warm(name, brokers, plan, work.warm)
        work.prepare([(brokers[CONTENDERS[name].broker], CONTENDERS[name].settings) for name in names], plan.conditions)
        for number in range(plan.rounds):
            for name in names:
                contender = CONTENDERS[name]
                broker = brokers[contender.broker]
                folder = plan.profile if contender.broker.startswith("penstock") else None
                profiler = Profiler(folder, f"{row.name}-{name}")
                begun_s = time.monotonic()
                with profiler.around(broker, plan.conditions):
                    figures = work.measure(broker, contender.settings, plan.conditions)
                figures["took_s"] = time.monotonic() - begun_s
                found[name].append(figures)
                told(row.name, name, number, figures)
    finally:
        work.forget()
    return {
        "title": row.title,
        "unit": work.unit,
        "rounds": found,
        "ready_s": {name: brokers[CONTENDERS[name].broker].ready_s for name in names},
        "versions": {name: brokers[CONTENDERS[name].broker].version for name in names},
    }


def _warm(name: str, brokers: Mapping[str, Broker], plan: Plan, measure: Callable[..., Figures]) -> None:
    contender = CONTENDERS[name]
    broker = brokers[contender.broker]
    seconds = warming_s(broker, plan)
    if seconds <= 0:
        return
    warming = replace(plan.conditions, seconds=seconds, lead_s=0.5)
    measure(broker, contender.settings, warming)
    broker.was_warmed = True


def warming_s(broker: Broker, plan: Plan) -> float:
    """The warm-up time of a broker under the next load."""
    if not broker.is_jvm:
        return min(plan.warm_s, WARM_OTHERS_S_MAX)
    return min(plan.warm_s, WARM_AGAIN_S_MAX) if broker.was_warmed else plan.warm_s
