"""Metrics of groups that are coordinated here: counts, committed offsets, lag.

Names are those of kafka_exporter, and those that Strimzi gives to the metrics of a group coordinator.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from penstock.coordinator.groups import GroupShard
from penstock.model.ports import Clock
from penstock.server.groups.group_lag import LagSurvey, Standing
from penstock.server.metrics.collector import PIECE, Collector
from penstock.server.metrics.page import Kind, Metric, Page, labels

_OF = ("consumergroup", "topic", "partition")
_SUM = ("consumergroup", "topic")
_SLOW = (
    "`penstock group lag GROUP --watch` shows it live, `penstock group why GROUP` if it rebalances instead of reading."
)

CURRENT = Metric("kafka_consumergroup_current_offset", Kind.GAUGE, "Where a group goes on in a partition.", _OF)
CURRENT_SUM = Metric("kafka_consumergroup_current_offset_sum", Kind.GAUGE, "The sum of these over a topic.", _SUM)
LAG = Metric(
    "kafka_consumergroup_lag",
    Kind.GAUGE,
    "Records that a group has not consumed yet; no series while it is not known where the log ends.",
    _OF,
    _SLOW,
)
LAG_SUM = Metric(
    "kafka_consumergroup_lag_sum",
    Kind.GAUGE,
    "The sum of these over a topic: of the partitions that have one.",
    _SUM,
    _SLOW,
)
LAG_SECONDS = Metric(
    "kafka_consumergroup_lag_seconds",
    Kind.GAUGE,
    "The age of the first record that a group has not consumed, read from that record; 0 at the end.",
    _OF,
    _SLOW,
)
UNKNOWN = Metric(
    "penstock_consumergroup_lag_unknown_partitions",
    Kind.GAUGE,
    "Partitions that have no lag, or no seconds, because nobody leads them or their leader did not tell in time.",
    _SUM,
    "Bring back the brokers that have their replicas: `penstock cluster health` names them.",
)
MEMBERS = Metric("kafka_consumergroup_members", Kind.GAUGE, "Members of a group.", ("consumergroup",))
LEFT_OUT = Metric(
    "penstock_metrics_group_partitions_left_out",
    Kind.GAUGE,
    "Partitions of groups that have no series of their own, because there are more than `metrics.partitions.max`.",
    advice="Raise the setting if Prometheus can take it.",
)
_MANAGER = "kafka_coordinator_group_groupmetadatamanager"
GROUPS = Metric(f"{_MANAGER}_numgroups", Kind.GAUGE, "Groups that are coordinated here.")
OFFSETS = Metric(f"{_MANAGER}_numoffsets", Kind.GAUGE, "Offsets that they have committed.")
STATES = {
    "Stable": Metric(f"{_MANAGER}_numgroupsstable", Kind.GAUGE, "Those among them at work."),
    "Empty": Metric(f"{_MANAGER}_numgroupsempty", Kind.GAUGE, "Those that nobody is in."),
    "PreparingRebalance": Metric(
        f"{_MANAGER}_numgroupspreparingrebalance",
        Kind.GAUGE,
        "Those that wait for members to join, or whose members are giving up partitions.",
        advice="If it stays above 0: `penstock group why GROUP`.",
    ),
    "CompletingRebalance": Metric(
        f"{_MANAGER}_numgroupscompletingrebalance", Kind.GAUGE, "Those whose partitions are being shared out."
    ),
}
_LIKE = {"Reconciling": "PreparingRebalance", "Assigning": "CompletingRebalance"}
"""States of KIP-848, and the classic states that they are counted as."""


class GroupCollector(Collector):
    """See the module."""

    metrics = (
        CURRENT,
        CURRENT_SUM,
        LAG,
        LAG_SUM,
        LAG_SECONDS,
        UNKNOWN,
        MEMBERS,
        LEFT_OUT,
        GROUPS,
        OFFSETS,
        *STATES.values(),
    )

    def __init__(self, survey: LagSurvey, clock: Clock) -> None:
        self._survey = survey
        self._clock = clock

    async def prepare(self) -> None:
        """Queries leaders for log end offsets."""
        await self._survey.look()

    def collect(self, page: Page) -> Iterator[None]:
        """Counts groups, then reports their offsets and lag."""
        shards = list(self._survey.shards())
        yield from self._count(page, shards)
        now_ms = self._clock.wall_ms()
        for group, found in sorted(self._survey.found.items()):
            _tell_partitions(page, group, found, now_ms)
            _tell_sums(page, group, found)
            yield
        page.family(LEFT_OUT).add(self._survey.left_out)

    def _count(self, page: Page, shards: list[GroupShard]) -> Iterator[None]:
        states = dict.fromkeys(STATES, 0)
        members: dict[str, int] = {}
        groups = offsets = 0
        for shard in shards:
            groups += len(shard.groups)
            for group_id in list(shard.offsets.groups()):
                offsets += shard.offsets.count_of(group_id)
                if group_id not in shard.groups:
                    groups += 1
                    states["Empty"] += 1
                    members[group_id] = 0
            for number, (group_id, group) in enumerate(list(shard.groups.items())):
                state = group.state if isinstance(group.state, str) else group.state.value
                state = _LIKE.get(state, state)
                if state in states:
                    states[state] += 1
                members[group_id] = len(group.members)
                if number % PIECE == PIECE - 1:
                    yield
        for group_id in sorted(members)[: self._survey.most()]:
            page.family(MEMBERS).add(members[group_id], labels(consumergroup=group_id))
        page.family(GROUPS).add(groups)
        page.family(OFFSETS).add(offsets)
        for state, metric in STATES.items():
            page.family(metric).add(states[state])
        yield


def _tell_partitions(page: Page, group: str, found: Sequence[Standing], now_ms: int) -> None:
    current, lag, seconds = page.families((CURRENT, LAG, LAG_SECONDS))
    for each in found:
        topic, partition = each.partition
        labelled = labels(consumergroup=group, topic=topic, partition=partition)
        current.add(each.committed, labelled)
        if each.lag is None:
            continue
        lag.add(each.lag.records, labelled)
        if each.is_age_known and (age_s := each.lag.seconds_at(now_ms)) is not None:
            seconds.add(age_s, labelled)


def _tell_sums(page: Page, group: str, found: Sequence[Standing]) -> None:
    current, lag, unknown = page.families((CURRENT_SUM, LAG_SUM, UNKNOWN))
    for topic, standings in groupby(found, lambda each: each.partition.topic):
        several, labelled = list(standings), labels(consumergroup=group, topic=topic)
        current.add(sum(each.committed for each in several), labelled)
        if known := [each.lag.records for each in several if each.lag is not None]:
            lag.add(sum(known), labelled)
        unknown.add(sum(not each.is_age_known for each in several), labelled)
