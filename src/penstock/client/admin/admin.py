"""Admin operations on topics, partitions, settings, records, groups, features and brokers.

Methods for one object raise Refused. Methods for several return the result of each, or the Refused that prevented it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.client import offsets
from penstock.client.admin import (
    brokers,
    configs,
    features,
    group_offsets,
    groups,
    leaders,
    quorum,
    reassignments,
    voters,
)
from penstock.client.admin.brokers import ClusterDescription, LogDir
from penstock.client.admin.configs import Change, ConfigEntry, ConfigKind
from penstock.client.admin.features import Direction, FeaturesDescription
from penstock.client.admin.groups import GroupDescription, GroupListing
from penstock.client.admin.leaders import Unled
from penstock.client.admin.quorum import QuorumDescription
from penstock.client.admin.reassignments import Moving
from penstock.client.admin.voters import VoterListener
from penstock.client.arguments import check_fields, typed
from penstock.client.cluster import Cluster
from penstock.client.errors import Refused, check
from penstock.client.metadata import Topic, TopicPartition
from penstock.client.offsets import Isolation, OffsetAt, refusal
from penstock.model.errors import ErrorCode
from penstock.model.setting_gap import SettingGap
from penstock.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from penstock.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from penstock.wire.types import ZERO_UUID

T = TypeVar("T")

BROKER_DECIDES = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created. -1 is the broker's default; `assignments` lists the replicas of each partition instead."""

    name: str
    partitions: int = BROKER_DECIDES
    replication_factor: int = BROKER_DECIDES
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Sequence[Sequence[int]] = ()

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A created topic; old brokers do not report the partitions and replication factor (-1)."""

    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int
    is_new: bool = True
    """False if the topic existed before, which `exist_ok` allows."""


class Admin:
    """See the module."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    # --- topics

    @typed
    async def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        waits: bool = True,
        timeout_ms: int | None = None,
    ) -> dict[str, CreatedTopic | Refused]:
        """Creates topics; `waits` until every partition has a leader, so that they can be used at once."""
        wanted = [
            CreatableTopic(
                name=each.name,
                num_partitions=BROKER_DECIDES if each.assignments else each.partitions,
                replication_factor=BROKER_DECIDES if each.assignments else each.replication_factor,
                assignments=[
                    CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
                    for number, brokers in enumerate(each.assignments)
                ],
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in each.configs.items()],
            )
            for each in topics
        ]
        response = await self.cluster.ask_controller(
            CreateTopicsRequest(topics=wanted, timeout_ms=self.cluster.request_timeout_ms, validate_only=validate_only),
            CreateTopicsResponse,
            lambda answer: [each.error_code for each in answer.topics if each.error_code is not ErrorCode.NONE],
            timeout_ms=timeout_ms,
        )
        made: dict[str, CreatedTopic | Refused] = {}
        for each in response.topics:
            if each.error_code is not ErrorCode.NONE:
                made[each.name] = Refused(each.error_code, each.error_message, f"topic {each.name}")
                continue
            made[each.name] = CreatedTopic(each.name, each.topic_id, each.num_partitions, each.replication_factor)
            if waits and not validate_only:
                await self._wait_for(each.name, timeout_ms)
        return made

    @typed
    async def create_topic(
        self,
        name: str,
        partitions: int = BROKER_DECIDES,
        replication_factor: int = BROKER_DECIDES,
        configs: Mapping[str, str] | None = None,
        *,
        assignments: Sequence[Sequence[int]] = (),
        exist_ok: bool = False,
        validate_only: bool = False,
        waits: bool = True,
        timeout_ms: int | None = None,
    ) -> CreatedTopic:
        """Creates a topic.

        With `exist_ok`, a topic that exists is returned as it is: its replication factor and settings are not compared
        or changed. If `partitions` are given and it has another number of them, that is an error nevertheless.
        """
        topic = NewTopic(name, partitions, replication_factor, configs or {}, assignments)
        made = await self.create_topics([topic], validate_only=validate_only, waits=waits, timeout_ms=timeout_ms)
        if exist_ok and isinstance(found := made[name], Refused) and found.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            if waits:
                await self._wait_for(name, timeout_ms)
            return self._existing(await self.describe_topic(name, timeout_ms=timeout_ms), topic)
        return _only(made)

    def _existing(self, found: Topic, wanted: NewTopic) -> CreatedTopic:
        count = len(found.partitions)
        wanted_count = len(wanted.assignments) or wanted.partitions
        if wanted_count not in {BROKER_DECIDES, count}:
            text = f"it has {count} partitions, not {wanted_count}: leave partitions out, "
            text += "add partitions to it, or choose another name"
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, text, f"topic {found.name}")
        replicas = max((len(each.replicas) for each in found.partitions), default=BROKER_DECIDES)
        return CreatedTopic(found.name, found.topic_id, count, replicas, is_new=False)

    async def _wait_for(self, name: str, timeout_ms: int | None, partitions: int = 1) -> None:
        retry = self.cluster.retry(timeout_ms)
        while True:
            self.cluster.distrust(name)
            # This request must not create the topic: it may arrive late, when the topic was deleted again.
            topic = await self.cluster.topic(name, is_coming=True, timeout_ms=retry.left_ms)
            ready = [each for each in topic.partitions if each.leader >= 0]
            if len(ready) == len(topic.partitions) >= partitions:
                return
            await retry.after(refusal(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name}"))

    @typed
    async def delete_topics(self, names: Iterable[str], *, timeout_ms: int | None = None) -> dict[str, Refused | None]:
        """Deletes topics and their records."""
        wanted = list(names)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in wanted],
            topic_names=wanted,
            timeout_ms=self.cluster.request_timeout_ms,
        )

        def codes(answer: DeleteTopicsResponse) -> list[ErrorCode]:
            # A retry does not help if the topic does not exist.
            final = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return [each.error_code for each in answer.responses if each.error_code not in final]

        response = await self.cluster.ask_controller(request, DeleteTopicsResponse, codes, timeout_ms=timeout_ms)
        for name in wanted:
            self.cluster.forget(name)
        return {
            each.name: None
            if each.error_code is ErrorCode.NONE
            else Refused(each.error_code, each.error_message, f"topic {each.name}")
            for each in response.responses
            if each.name is not None
        }

    @typed
    async def delete_topic(self, name: str, *, timeout_ms: int | None = None) -> None:
        """Deletes a topic and its records."""
        (refused,) = (await self.delete_topics([name], timeout_ms=timeout_ms)).values()
        if refused is not None:
            raise refused

    @typed
    async def list_topics(self, *, with_internal: bool = False, timeout_ms: int | None = None) -> list[Topic]:
        """All topics, sorted by name."""
        await self.cluster.refresh(None, timeout_ms=timeout_ms)
        topics = sorted(self.cluster.view.topics.values(), key=lambda topic: topic.name)
        return [topic for topic in topics if with_internal or not topic.is_internal]

    @typed
    async def describe_topics(
        self, names: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, Topic | Refused]:
        """Fresh metadata of topics."""
        wanted = list(names)
        refused = await self.cluster.refresh(wanted, timeout_ms=timeout_ms)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {
            name: self.cluster.view.topics.get(name) or refusal(refused.get(name, unknown), f"topic {name}")
            for name in wanted
        }

    @typed
    async def describe_topic(self, name: str, *, timeout_ms: int | None = None) -> Topic:
        """Fresh metadata of a topic."""
        return _only(await self.describe_topics([name], timeout_ms=timeout_ms))

    @typed
    async def add_partitions(
        self,
        topic: str,
        total: int,
        *,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Increases the number of partitions to `total`. Keys will map to other partitions than before."""
        placed = None if assignments is None else [CreatePartitionsAssignment(broker_ids=each) for each in assignments]
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=total, assignments=placed)],
            timeout_ms=self.cluster.request_timeout_ms,
            validate_only=validate_only,
        )
        response = await self.cluster.ask_controller(
            request,
            CreatePartitionsResponse,
            lambda answer: [each.error_code for each in answer.results if each.error_code is not ErrorCode.NONE],
            timeout_ms=timeout_ms,
        )
        (result,) = response.results
        check(result.error_code, result.error_message, f"topic {topic}")
        if not validate_only:
            await self._wait_for(topic, timeout_ms, total)

    # --- settings

    @typed
    async def describe_configs(
        self, kind: ConfigKind, name: str, *, names: Sequence[str] | None = None, timeout_ms: int | None = None
    ) -> dict[str, ConfigEntry]:
        """Settings of a topic, a broker (by its id) or a group."""
        return await configs.describe_configs(self.cluster, kind, name, names=names, timeout_ms=timeout_ms)

    @typed
    async def describe_topic_configs(
        self, topics: Sequence[str], *, names: Sequence[str] | None = None, timeout_ms: int | None = None
    ) -> dict[str, dict[str, ConfigEntry]]:
        """Settings of many topics at once."""
        return await configs.describe_topic_configs(self.cluster, topics, names=names, timeout_ms=timeout_ms)

    @typed
    async def setting_gaps(self, *, timeout_ms: int | None = None) -> dict[str, SettingGap]:
        """Settings that this version of Penstock accepts without effect, by name; none for Apache Kafka."""
        return await configs.setting_gaps(self.cluster, timeout_ms=timeout_ms)

    @typed
    async def alter_configs(
        self,
        kind: ConfigKind,
        name: str,
        changes: Mapping[str, str | tuple[Change, str | None] | None],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Changes settings: a string sets a value, None restores the default, a pair applies its Change."""
        steps = {key: value if isinstance(value, tuple) else _change(value) for key, value in changes.items()}
        await configs.alter_configs(self.cluster, kind, name, steps, validate_only=validate_only, timeout_ms=timeout_ms)

    # --- records

    @typed
    async def offsets(
        self,
        topic: str,
        moment: int,
        *,
        partitions: Iterable[int] | None = None,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> dict[int, OffsetAt]:
        """Offsets by partition at a Moment (earliest, latest, largest timestamp) or a timestamp."""
        if partitions is None:
            partitions = [each.index for each in (await self.cluster.topic(topic, timeout_ms=timeout_ms)).partitions]
        wanted = {TopicPartition(topic, partition): int(moment) for partition in partitions}
        found = await offsets.list_offsets(self.cluster, wanted, isolation, timeout_ms=timeout_ms)
        return {partition.partition: offset for partition, offset in found.items()}

    @typed
    async def delete_records(
        self, topic: str, before: Mapping[int, int], *, timeout_ms: int | None = None
    ) -> dict[int, int]:
        """Deletes records before an offset, by partition (-1: high watermark); returns the new log start offsets.

        It returns when every live replica and every replica that can be elected has deleted them.
        """
        wanted = {TopicPartition(topic, partition): offset for partition, offset in before.items()}
        found = await offsets.delete_records(self.cluster, wanted, timeout_ms=timeout_ms)
        return {partition.partition: offset for partition, offset in found.items()}

    # --- brokers

    @typed
    async def describe_cluster(self, *, timeout_ms: int | None = None) -> ClusterDescription:
        """The current brokers."""
        return await brokers.describe_cluster(self.cluster, timeout_ms=timeout_ms)

    @typed
    async def unregister_broker(self, node_id: int, *, timeout_ms: int | None = None) -> None:
        """Removes a broker that is gone for good from the list of brokers."""
        await brokers.unregister_broker(self.cluster, node_id, timeout_ms=timeout_ms)

    @typed
    async def describe_quorum(self, *, timeout_ms: int | None = None) -> QuorumDescription:
        """The metadata quorum as its leader reports it."""
        return await quorum.describe_quorum(self.cluster, timeout_ms=timeout_ms)

    @typed
    async def add_voter(
        self, node_id: int, directory_id: bytes, listener: VoterListener, *, timeout_ms: int | None = None
    ) -> None:
        """Makes a controller a voter of the metadata quorum."""
        await voters.add_voter(self.cluster, node_id, directory_id, listener, timeout_ms=timeout_ms)

    @typed
    async def remove_voter(self, node_id: int, directory_id: bytes, *, timeout_ms: int | None = None) -> None:
        """Makes a voter of the metadata quorum an observer."""
        await voters.remove_voter(self.cluster, node_id, directory_id, timeout_ms=timeout_ms)

    @typed
    async def log_dirs(
        self,
        node_ids: Iterable[int] | None = None,
        *,
        partitions: Sequence[TopicPartition] | None = None,
        timeout_ms: int | None = None,
    ) -> dict[int, list[LogDir]]:
        """The log directories of some or all brokers, with the replicas of some or all partitions."""
        return await brokers.log_dirs(self.cluster, node_ids, partitions=partitions, timeout_ms=timeout_ms)

    # --- features

    @typed
    async def describe_features(self, *, timeout_ms: int | None = None) -> FeaturesDescription:
        """The finalized levels, and the levels that each node supports."""
        return await features.describe_features(self.cluster, timeout_ms=timeout_ms)

    @typed
    async def raise_features(
        self, levels: Mapping[str, int], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> None:
        """Finalizes higher levels, all or none. Nodes that do not support them are not admitted afterwards."""
        await features.update_features(
            self.cluster, levels, Direction.UP, validate_only=validate_only, timeout_ms=timeout_ms
        )

    @typed
    async def lower_features(
        self, levels: Mapping[str, int], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> None:
        """Finalizes lower levels, all or none; 0 turns a feature off."""
        await features.update_features(
            self.cluster, levels, Direction.DOWN, validate_only=validate_only, timeout_ms=timeout_ms
        )

    # --- leaders

    @typed
    async def unled(self, topics: Sequence[str], *, timeout_ms: int | None = None) -> list[Unled]:
        """Partitions of these topics without a leader, and the replicas that hold, or held, all committed records."""
        return await leaders.unled(self.cluster, topics, timeout_ms=timeout_ms)

    @typed
    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], *, is_unclean: bool = False, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Refused | None]:
        """Elects the preferred replica; if unclean, any live replica where none leads, even if records are lost."""
        return await leaders.elect_leaders(self.cluster, partitions, is_unclean=is_unclean, timeout_ms=timeout_ms)

    # --- reassignments

    @typed
    async def list_reassignments(self, *, timeout_ms: int | None = None) -> list[Moving]:
        """Partition reassignments in progress."""
        return await reassignments.list_reassignments(self.cluster, timeout_ms=timeout_ms)

    @typed
    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Refused | None]:
        """Reassigns partitions to brokers, the preferred leader first; None cancels a reassignment."""
        return await reassignments.alter_reassignments(self.cluster, targets, timeout_ms=timeout_ms)

    # --- groups

    @typed
    async def list_groups(self, *, timeout_ms: int | None = None) -> list[GroupListing]:
        """All groups."""
        return await groups.list_groups(self.cluster, timeout_ms=timeout_ms)

    @typed
    async def describe_group(self, group_id: str, *, timeout_ms: int | None = None) -> GroupDescription:
        """A group and its members."""
        return await groups.describe_group(self.cluster, group_id, timeout_ms=timeout_ms)

    @typed
    async def group_offsets(self, group_id: str, *, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        """Committed offsets of a group."""
        return await groups.group_offsets(self.cluster, group_id, timeout_ms=timeout_ms)

    @typed
    async def delete_group_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, Refused | None]:
        """Deletes committed offsets of a group."""
        return await group_offsets.delete_offsets(self.cluster, group_id, partitions, timeout_ms=timeout_ms)

    @typed
    async def delete_group(self, group_id: str, *, timeout_ms: int | None = None) -> None:
        """Deletes an empty group and its offsets."""
        await groups.delete_group(self.cluster, group_id, timeout_ms=timeout_ms)


def _only(results: Mapping[str, T | Refused]) -> T:
    (result,) = results.values()
    if isinstance(result, Refused):
        raise result
    return result


def _change(value: str | None) -> tuple[Change, str | None]:
    return (Change.DELETE, None) if value is None else (Change.SET, value)
