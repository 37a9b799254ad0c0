"""Findings about a cluster without a confirmed majority: only what nodes themselves answer is reported as well.

Brokers go on with the metadata that they have: they report leaders and in-sync replicas as these were before the loss.
"""

from collections.abc import Iterator

from penstock.cli.cluster.state import ClusterState
from penstock.cli.connection.majority import FIX, STOPS, headline, silent_text
from penstock.client.admin.majority import QuorumProbe
from penstock.client.errors import ClientError
from penstock.model.findings import Finding, well, wrong


def unconfirmed_findings(state: ClusterState, probe: QuorumProbe) -> Iterator[Finding]:
    """What does not work, which brokers answer, and what can be read and written as far as these know."""
    silent = silent_text(probe)
    yield wrong("controller", headline(probe) + (f"; {silent}" if silent else ""), FIX)
    yield wrong("decisions", f"what does not work: {STOPS}", FIX)
    answering = [each for each, found in sorted(state.log_dirs.items()) if not isinstance(found, ClientError)]
    yield _brokers(state, answering)
    yield _partitions(state, answering)


def _brokers(state: ClusterState, answering: list[int]) -> Finding:
    known = sorted(state.brokers | state.fenced)
    silent = [each for each in known if each not in answering]
    if not silent:
        return well("broker", f"{_count(len(known), 'broker')} answer{'s' * (len(known) == 1)}")
    text = f"{len(answering)} of {_count(len(known), 'broker')} answer{'s' * (len(answering) == 1)}; silent: "
    return wrong(
        "broker", text + ", ".join(map(str, silent)), "a broker that is started now serves only with a majority"
    )


def _partitions(state: ClusterState, answering: list[int]) -> Finding:
    partitions = [part for _, part in state.partitions()]
    read = [each for each in partitions if each.leader in answering]
    written = [each for each in read if set(each.isr) <= set(answering)]
    text = (
        "leaders and in-sync replicas are not confirmed; as the brokers knew them before the loss, "
        f"{len(read)} of {_count(len(partitions), 'partition')} can still be read, and {len(written)} written with "
        "acks=all: those whose leader, and those whose in-sync replicas all answer"
    )
    return wrong("partitions", text, "a partition whose leader is gone gets another one only with a majority")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
