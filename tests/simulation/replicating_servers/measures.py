"""The measures of worlds of replicating servers."""

from tests.simulation.replicating_servers.world import Run


def measures(run: Run) -> dict[str, int]:
    return {"events": run.events, "acknowledged": run.acknowledged, "epochs": run.epochs, "cuts": run.cuts}


def summary(run: Run) -> str:
    return f"{run.acknowledged} records acknowledged in {run.epochs} epochs, {run.cuts} cuts of logs"
