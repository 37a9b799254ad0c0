"""Worlds of whole servers with replicas by seed: `python -m tests.simulation.replicating_servers --help`."""

import sys

from tests.simulation.kit import campaign
from tests.simulation.replicating_servers.measures import measures, summary
from tests.simulation.replicating_servers.world import END_S, FAILED, FULL, run_seed
from tests.simulation.three_servers.world import FAULTS

ABOUT = """\
Three real nodes (`penstock.server.node.Node`), each broker and controller, on lossy disks and virtual time, 20 seconds
each, and two writers who send to a topic of three replicas, acks=all. Half of the time nodes are killed, lose power
(also all at once), have full disks and logs that fail, stand still, have clocks that run wrong; links are cut in one
direction or both, clogged, reset (`tests/simulation/replicating_servers/world.py`). What a node shows as committed must
never change and be the same on all, in all their lives; in the end everybody is in sync, all logs are the same to the
byte, and hold whatever was acknowledged, once, where the writer was told, in its order. Records of another topic are
deleted all the time: what DeleteRecords acknowledged stays deleted, whoever leads."""


KIND = campaign.Kind(
    name="replicas",
    program="tests.simulation.replicating_servers",
    run_seed=run_seed,
    measures=measures,
    summary=summary,
    columns=(
        ("Events", "events"),
        ("Epochs", "epochs"),
        ("Records acknowledged", "acknowledged"),
        ("Logs cut", "cuts"),
    ),
    faults=(FAULTS, "power cuts of all nodes at once", FULL, FAILED),
    virtual_s=int(END_S),
    title="Three whole servers with replicas in the simulator",
    about=ABOUT,
    mutants="replication-mutants.md",
    cores=("server", "replication"),
)

if __name__ == "__main__":
    sys.exit(campaign.main(KIND))
