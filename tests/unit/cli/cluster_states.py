"""States of a cluster, from which findings are made."""

from penstock.cli.cluster.checkups import health_findings
from penstock.cli.cluster.state import ClusterState
from penstock.client.admin.brokers import LogDir
from penstock.client.admin.quorum import QuorumDescription, QuorumReplica
from penstock.client.metadata import Broker, Partition, Topic
from penstock.model.errors import ErrorCode
from penstock.model.findings import Finding

NOW_MS = 1_800_000_000_000
START = "turn it on"


def brokers(*node_ids: int) -> dict[int, Broker]:
    return {node_id: Broker(node_id, "host", 9090 + node_id) for node_id in node_ids}


def orders(*, leader: int = 1, isr: tuple[int, ...] = (1, 2, 3), replicas: tuple[int, ...] = (1, 2, 3)) -> Topic:
    return Topic("orders", b"0" * 16, False, (Partition(0, leader, 5, replicas, isr, ()),))


def a_quorum(*silent_ms: int) -> QuorumDescription:
    """Describes a quorum whose voters were last heard from that many milliseconds ago; the first leads."""
    voters = (QuorumReplica(1 + i, b"", 100, NOW_MS - each, NOW_MS) for i, each in enumerate(silent_ms))
    return QuorumDescription(1, 7, 100, tuple(voters), ())


WELL = ClusterState(
    brokers(1, 2, 3),
    topics=(orders(),),
    quorum=a_quorum(0, 200, 300),
    log_dirs={1: [LogDir("/data", ErrorCode.NONE, 10**12, 10**11, {})]},
)


def complaints(state: ClusterState) -> dict[str, Finding]:
    found = [each for each in health_findings(state, START) if not each.is_well]
    assert all(each.fix for each in found)
    return {each.check: each for each in found}
