"""Worlds of three whole servers by seed: `python -m tests.simulation.three_servers --help`."""

import sys

from tests.simulation.kit import campaign
from tests.simulation.three_servers.world import END_S, FAULTS, Run, run_seed

ABOUT = """\
Three real nodes (`penstock.server.node.Node`), each broker and controller, on lossy disks and virtual time, 20 seconds
each, and two operators who make and delete topics through whichever node answers. Half of the time nodes are killed,
lose power, stand still, have clocks that run wrong; links are cut in one direction or both, clogged, reset
(`tests/simulation/three_servers/world.py`). No epoch may have two active controllers, at one offset of the log all
nodes must have the same cluster, and whatever an operator was told must last; in the end all nodes serve, agree, and
have the logs of their replicas and no others."""


def measures(run: Run) -> dict[str, int]:
    return {"events": run.events, "epochs": run.epochs, "made": run.made, "deleted": run.deleted}


def summary(run: Run) -> str:
    return f"{run.made} topics made and {run.deleted} deleted in {run.epochs} epochs"


KIND = campaign.Kind(
    name="servers",
    program="tests.simulation.three_servers",
    run_seed=run_seed,
    measures=measures,
    summary=summary,
    columns=(("Events", "events"), ("Epochs", "epochs"), ("Topics made", "made"), ("Deleted", "deleted")),
    faults=(FAULTS,),
    virtual_s=int(END_S),
    title="Three whole servers in the simulator",
    about=ABOUT,
    mutants="cluster-mutants.md",
    cores=("server", "raft", "metadata"),
)

if __name__ == "__main__":
    sys.exit(campaign.main(KIND))
