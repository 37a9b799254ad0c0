"""Problems that the checkups of `penstock cluster` find in a town."""

from penstock.cli.cluster.checkups import health_findings
from penstock.cli.cluster.state import ClusterState


def complaints(state: ClusterState) -> dict[str, str]:
    return {each.check: each.found for each in health_findings(state) if not each.is_well and each.check != "disk"}
