"""Cores with one rule removed at a time, to verify that worlds notice, and for which reason.

    PROGRAM                     how many seeds each mutant takes, measured five times
    PROGRAM --record            the same, written to docs/results; the first seeds are kept in regressions.txt

Every mutant names the invariants by which it may be caught; another reason does not count.
"""

import argparse
import multiprocessing
from collections import Counter
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple, TypeAlias

import pytest

from tests.revision import revision
from tests.simulation.kit.invariants import reason_of
from tests.simulation.kit.regressions import remember, seed_that_caught
from tests.simulation.kit.results import RESULTS

STARTS = range(0, 50_000, 10_000)
Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]


class Mutant(NamedTuple):
    plant: Plant
    reasons: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.plant.__name__

    @property
    def rule(self) -> str:
        """The scenario with which the plant's docstring begins, if it does."""
        first = (self.plant.__doc__ or "").split(":")[0].split(",")[0].rstrip(".")
        return first if first.startswith("R") and first[1:].isdigit() else ""


class Catch(NamedTuple):
    """The number of worlds that were run, and the reason for which the last one failed."""

    seeds: int
    reason: str


class Measured(NamedTuple):
    needed: list[int]
    reasons: dict[str, int]


class Mutants:
    """The mutants of one kind of world."""

    def __init__(
        self,
        kind: str,
        run_seed: Callable[[int], Any],
        seeds_max: int,
        must_fall: tuple[str, ...] = (),
        each: str = "a world of 60 virtual seconds",
    ) -> None:
        self.kind = kind
        self.seeds_max = seeds_max
        self.must_fall = must_fall
        """Invariants that must be broken, each by some mutant."""
        self.each = each
        """The description of one seed."""
        self._run_seed = run_seed
        self.all: list[Mutant] = []

    def caught_by(self, *reasons: str) -> Callable[[Plant], Plant]:
        def add(plant: Plant) -> Plant:
            self.all.append(Mutant(plant, reasons))
            return plant

        return add

    @property
    def names(self) -> list[str]:
        return [mutant.name for mutant in self.all]

    def catch(self, first: int) -> Catch | None:
        """Runs worlds until one fails."""
        for seed in range(first, first + self.seeds_max):
            reason = self._noticed(seed)
            if reason is not None:
                return Catch(seed - first + 1, reason)
        return None

    def catch_soon(self, mutant: Mutant) -> Catch | None:
        """Like `catch`, but tries the recorded seed of the mutant first."""
        known = seed_that_caught(self.kind, mutant.name)
        reason = self._noticed(known) if known is not None else None
        return Catch(1, reason) if reason is not None else self.catch(0)

    def _noticed(self, seed: int) -> str | None:
        try:
            self._run_seed(seed)
        except Exception as error:
            return reason_of(error)
        return None

    # --- measuring ------------------------------------------------------------------------------------------------

    def measure(self, name: str) -> Measured:
        """The number of seeds from each start, and how often each reason was the one."""
        mutant = next(each for each in self.all if each.name == name)
        needed: list[int] = []
        reasons: Counter[str] = Counter()
        with pytest.MonkeyPatch.context() as patch:
            mutant.plant(patch)
            for first in STARTS:
                seeds, reason = self.catch(first) or Catch(self.seeds_max + 1, "not caught")
                needed.append(seeds)
                reasons[reason] += 1
        return Measured(needed, dict(sorted(reasons.items())))

    def main(self, measure: Callable[[str], Measured], title: str, about: str) -> int:
        """Measures and prints the mutants; `measure` is a module-level function, since processes receive it by name."""
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("names", nargs="*")
        parser.add_argument("--workers", type=int, default=2)
        parser.add_argument("--record", action="store_true")
        options = parser.parse_args()
        chosen = [mutant for mutant in self.all if not options.names or mutant.name in options.names]
        rows, medians, wrong = [], [], 0
        caught: dict[str, int] = {}
        fallen: Counter[str] = Counter()
        with multiprocessing.Pool(options.workers) as pool:
            outcomes = pool.imap(measure, [mutant.name for mutant in chosen])
            for mutant, (needed, reasons) in zip(chosen, outcomes, strict=True):
                medians.append(median(needed))
                is_wrong = any(reason not in mutant.reasons for reason in reasons)
                wrong += is_wrong
                fallen.update(reasons)
                shown = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
                cells = [mutant.name.replace("_", " "), mutant.rule, f"{median(needed):.0f}", f"{max(needed)}", shown]
                rows.append(f"| {' | '.join(cells)} |")
                print(rows[-1], "UNEXPECTED" if is_wrong else "", flush=True)
                if needed[0] <= self.seeds_max:
                    caught[mutant.name] = STARTS[0] + needed[0] - 1
        standing = [name for name in self.must_fall if not fallen[name]]
        if not options.names and standing:
            print(f"never fell: {standing}")
            wrong += 1
        if options.record:
            (RESULTS / f"{self.kind}-mutants.md").write_text(self._page(title, about, rows, median(medians), fallen))
            remember(self.kind, caught)
        return 1 if wrong else 0

    def _page(self, title: str, about: str, rows: list[str], middle: float, fallen: Counter[str]) -> str:
        fell = ", ".join(f"{name} {count}" for name, count in sorted(fallen.items()))
        return f"""# {title}

{about}
Each mutant runs until an invariant falls, five times over, from seeds 0, 10,000, 20,000, 30,000 and 40,000 on. The
reason must be one that the mutant names. A seed is {self.each}; the median of all medians is
{middle:.0f}. There are {len(rows)} of them; one that was not caught says so. Revision {revision()}.

| Mutant | Scenario | Seeds to catch (median) | Most | Caught by (times) |
|---|---|--:|--:|---|
{chr(10).join(rows)}

What fell, and how often: {fell}.

`./dev mutants {self.kind}` writes this page. The first seed that caught each is run in every check, with the mutant and
without it.
"""


def notice(mutants: Mutants, mutant: Mutant, patch: pytest.MonkeyPatch) -> Catch:
    """Plants the mutant and asserts that it is caught for one of its reasons."""
    mutant.plant(patch)
    caught = mutants.catch_soon(mutant)
    assert caught is not None, f"{mutant.name} went unnoticed in {mutants.seeds_max} worlds"
    assert caught.reason in mutant.reasons, f"{mutant.name} was caught by {caught.reason}"
    return caught
