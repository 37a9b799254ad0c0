"""Worlds of whole servers that coordinate groups, by seed: `python -m tests.simulation.coordinating_servers --help`."""

import sys

from tests.simulation.coordinating_servers.world import END_S, Run, run_seed
from tests.simulation.kit import campaign
from tests.simulation.three_servers.world import FAULTS

ABOUT = """\
Three real nodes (`penstock.server.node.Node`), each broker and controller, on lossy disks and virtual time, 22 seconds
each; two clients that only commit, three members of a classic group, two of a KIP-848 group. Half of the time nodes are
killed, lose power (also all at once), stand still, have clocks that run wrong; links are cut in one direction or both,
clogged, reset (`tests/simulation/coordinating_servers/world.py`). Whoever asks how far a group has read must be told of
a commit that none which was acknowledged has followed, and a partition is given to one member at a time."""


def measures(run: Run) -> dict[str, int]:
    return {
        "events": run.events,
        "acknowledged": run.acknowledged,
        "epochs": run.epochs,
        "meetings": run.meetings,
    }


def summary(run: Run) -> str:
    return f"{run.acknowledged} commits acknowledged in {run.epochs} epochs of coordinators, {run.meetings} joins"


KIND = campaign.Kind(
    name="coordinators",
    program="tests.simulation.coordinating_servers",
    run_seed=run_seed,
    measures=measures,
    summary=summary,
    columns=(
        ("Events", "events"),
        ("Epochs", "epochs"),
        ("Commits acknowledged", "acknowledged"),
        ("Joins of classic members", "meetings"),
    ),
    faults=(FAULTS, "power cuts of all nodes at once"),
    virtual_s=int(END_S),
    title="Three whole servers that coordinate groups in the simulator",
    about=ABOUT,
    mutants="group-mutants.md",
    cores=("server", "coordinator"),
)

if __name__ == "__main__":
    sys.exit(campaign.main(KIND))
