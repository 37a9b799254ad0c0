"""Runs the proof of every planted bug, and records which test notices which bug.

    python -m tests.simulation.planted                prints a line for each bug
    python -m tests.simulation.planted --record       and writes docs/results/planted-bugs.md

The tests run under pytest: the reasons of proofs are texts of rewritten assertions.
"""

import argparse
import sys
from pathlib import Path
from types import CodeType

import pytest

from tests.revision import revision
from tests.simulation.kit.results import RESULTS
from tests.simulation.planted.bugs import ALL, CoreMutant

TESTS = Path(__file__).with_name("test_bugs.py")


class Outcomes:
    """A pytest plugin that keeps the outcome of the test of each bug."""

    def __init__(self) -> None:
        self.noticed: dict[str, bool] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest after each phase of a test."""
        for mutant in ALL:
            if report.nodeid.endswith(f"[{mutant.name}]"):
                self.noticed[mutant.name] = self.noticed.get(mutant.name, True) and report.passed


def row(mutant: CoreMutant, *, is_noticed: bool) -> str:
    places = dict.fromkeys(f"`{place_of(edit.function.__code__)}`" for edit in mutant.edits)
    proof = f"`{mutant.proof.__name__}`" if is_noticed else "NOT NOTICED"
    worlds = "<br>".join(f"`{each}`" for each in mutant.worlds)
    return f"| {mutant.name} | {'<br>'.join(places)} | {proof} | {worlds} |"


def page(noticed: dict[str, bool]) -> str:
    rows = [row(mutant, is_noticed=noticed.get(mutant.name, False)) for mutant in ALL]
    hidden = [f"- {mutant.name}: {mutant.hidden_by}." for mutant in ALL if mutant.hidden_by]
    return f"""# Subtle bugs, planted one at a time

{len(ALL)} edits of a line or two, of the kind that a review overlooks (`tests/simulation/planted/bugs.py`). Each has a
proof: a test below `tests/unit` that holds without the bug and fails with it, for the reason that the bug names. Bugs
whose rule is also taken out in random worlds name the mutants there, below `tests/simulation`. Revision {revision()}.

| Bug | Where, below `src/penstock` | Proof, below `tests/unit` | Noticed by random worlds too |
|---|---|---|---|
{chr(10).join(rows)}

{len(hidden)} of them do no harm alone, because another safeguard prevents it. Their proofs look at the function itself,
so that both safeguards stay:

{chr(10).join(hidden)}

`./dev mutants planted` writes this page. Every check runs all proofs, with the bug and without it.
"""


def place_of(code: CodeType) -> str:
    """The file of a function, and its name."""
    return f"{code.co_filename.rpartition('/penstock/')[2]}::{code.co_qualname}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    outcomes = Outcomes()
    arguments = ["-q", "-p", "no:cacheprovider", "-k", "proof_notices", str(TESTS)]
    status = int(pytest.main(arguments, plugins=[outcomes]))
    for mutant in ALL:
        print(row(mutant, is_noticed=outcomes.noticed.get(mutant.name, False)))
    if options.record:
        (RESULTS / "planted-bugs.md").write_text(page(outcomes.noticed))
    return status


if __name__ == "__main__":
    sys.exit(main())
