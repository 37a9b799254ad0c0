"""Checks of `doctor` on what a broker reports: its disk, its clock, and its recent complaints about clients."""

import json
import time
from typing import TYPE_CHECKING

from penstock.cli.disk_room import room_finding
from penstock.cli.doctor.machine import MORE_DESCRIPTORS
from penstock.client.admin.configs import ConfigKind
from penstock.client.errors import ClientError
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import Moment, list_offsets
from penstock.model.errors import ErrorCode
from penstock.model.findings import Finding, well, wrong
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from penstock.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

if TYPE_CHECKING:
    from penstock.client.cluster import Cluster
    from penstock.client.connection.connection import BrokerConnection

APART_MS_MAX = 5_000
AHEAD_MS_MAX = 60_000
PARTITIONS_MAX = 100
CLOCK = "penstock.clock.ms"
COMPLAINTS = "penstock.complaints"
SET_CLOCKS = "let NTP set both clocks: timedatectl set-ntp true"
FIXES = {
    "tls": "set security.protocol=PLAINTEXT in that client, or point it at a TLS listener",
    "http": "use a Kafka client there; whatever checks its health may open a connection and close it",
    "UnsupportedVersion": "upgrade that client; if it is librdkafka, unset broker.version.fallback",
    "accept": MORE_DESCRIPTORS,
}


async def vital_findings(node_id: int, connection: "BrokerConnection") -> list[Finding]:
    """Findings from the reports of one broker; a broker that is not Penstock reports less."""
    try:
        found = await _rooms(node_id, connection)
        asked_s = time.time()
        told = await _ask(node_id, connection)
        now_s = (asked_s + time.time()) / 2
    except ClientError as error:
        return [wrong("broker", f"broker {node_id} does not tell how it is: {error}", "look at its log")]
    if CLOCK in told:
        found.append(_clock(node_id, int(told[CLOCK]), now_s * 1000))
    if COMPLAINTS in told:
        found += _complaints(node_id, told[COMPLAINTS])
    return found


async def _rooms(node_id: int, connection: "BrokerConnection") -> list[Finding]:
    answer = await connection.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    found = []
    for each in answer.results:
        place = f"{each.log_dir} of broker {node_id}"
        if each.error_code is not ErrorCode.NONE:
            fix = "look at the broker's log for the error, mend the disk, and restart the broker"
            found.append(wrong("disk", f"{place} is offline: {each.error_code.name}", fix))
        elif each.usable_bytes >= 0:
            found.append(room_finding("disk", each.usable_bytes, each.total_bytes, place))
    return found


async def _ask(node_id: int, connection: "BrokerConnection") -> dict[str, str]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=ConfigKind.BROKER, resource_name=str(node_id), configuration_keys=[CLOCK, COMPLAINTS]
            )
        ]
    )
    (result,) = (await connection.ask(request, DescribeConfigsResponse)).results
    return {each.name: each.value for each in result.configs if each.value is not None}


def _clock(node_id: int, its_ms: int, our_ms: float) -> Finding:
    apart_ms = its_ms - our_ms
    if abs(apart_ms) <= APART_MS_MAX:
        return well("clocks", f"the clocks of broker {node_id} and of this machine agree")
    way = "ahead of" if apart_ms > 0 else "behind"
    text = f"the clock of broker {node_id} is {abs(apart_ms) / 1000:.0f} s {way} this machine's"
    return wrong("clocks", text, SET_CLOCKS)


def _complaints(node_id: int, told: str) -> list[Finding]:
    found = []
    for each in json.loads(told):
        often = "" if each["times"] == 1 else f", {each['times']} times by now"
        text = f"broker {node_id} said {each['seconds_ago']} s ago{often}: {each['sentence']}"
        found.append(wrong("clients", text, FIXES.get(each["kind"], "look at that client, and at the broker's log")))
    return found or [well("clients", f"broker {node_id} has nothing to complain of")]


async def future_finding(cluster: "Cluster") -> Finding:
    """Checks for records with future timestamps: this machine's clock is behind, or a producer's is ahead."""
    try:
        await cluster.refresh(None)
        partitions = [
            TopicPartition(topic.name, each.index)
            for topic in cluster.view.topics.values()
            for each in topic.partitions
            if each.leader >= 0
        ][:PARTITIONS_MAX]
        newest = await list_offsets(cluster, dict.fromkeys(partitions, Moment.MAX_TIMESTAMP)) if partitions else {}
    except ClientError as error:
        return wrong("records", f"the newest records cannot be looked up: {error}", "see the findings above")
    now_ms = time.time() * 1000
    ahead = {each: at.timestamp_ms - now_ms for each, at in newest.items() if at.timestamp_ms > now_ms + AHEAD_MS_MAX}
    if ahead:
        worst = max(ahead, key=ahead.__getitem__)
        text = f"{worst} has a record from {ahead[worst] / 1000:.0f} s in the future"
        return wrong("records", text, "let NTP set the clocks of this machine and of the producer")
    return well("records", "no record is from the future")
