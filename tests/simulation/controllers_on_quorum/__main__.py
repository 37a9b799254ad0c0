"""Worlds of whole clusters by seed: `python -m tests.simulation.controllers_on_quorum --help`."""

import sys

from tests.simulation.controller_core.faults import END_MS
from tests.simulation.controllers_on_quorum.faults import Run, run_seed
from tests.simulation.controllers_on_quorum.options import FAULTS
from tests.simulation.kit import campaign

ABOUT = """\
Worlds of three to eight nodes on a heap with virtual time, 60 seconds each: raft cores (`penstock.raft`) carry the log
of controller cores (`penstock.metadata`), whose decisions simulated brokers act on
(`tests/simulation/controllers_on_quorum/world.py`). Messages are lost, doubled, late and out of order, links cut in one
direction or both, machines lose power and what they had not synced, stop for a while, have clocks that run wrong, come
back with an empty disk; voters, topics, partitions and settings change meanwhile. The invariants of the quorum
(`tests/simulation/raft_core/checks.py`) are looked at after every event, those of the controller
(`tests/simulation/controller_core/checks.py`) after every decision and every commit; in the end one controller is
active, all nodes have the same image, every partition is led by its first replica and in sync everywhere, with every
record that was ever acknowledged."""


def measures(run: Run) -> dict[str, int]:
    return {
        "events": run.events,
        "committed": run.committed,
        "epochs": run.epochs,
        "controllers": run.controllers,
        "answers": run.answers,
        "acknowledged": run.acknowledged,
    }


def summary(run: Run) -> str:
    return f"{run.committed} entries committed in {run.epochs} epochs, {run.acknowledged} records written"


KIND = campaign.Kind(
    name="cluster",
    program="tests.simulation.controllers_on_quorum",
    run_seed=run_seed,
    measures=measures,
    summary=summary,
    columns=(
        ("Events", "events"),
        ("Epochs led", "epochs"),
        ("Controllers", "controllers"),
        ("Entries committed", "committed"),
        ("Answers", "answers"),
        ("Records acknowledged", "acknowledged"),
    ),
    faults=tuple(dict.fromkeys(FAULTS)),
    virtual_s=int(END_MS) // 1000,
    title="Raft and the controller together in the simulator",
    about=ABOUT,
    mutants="cluster-mutants.md",
)

if __name__ == "__main__":
    sys.exit(campaign.main(KIND))
