"""Settings of a broker's share groups and their coordinator."""

from penstock.metadata.settings.setting import Importance, Kind, Setting, Update, at_least, between

HIGH = Importance.HIGH
CLUSTER_WIDE = Update.CLUSTER_WIDE

SETTINGS = (
    Setting(
        "group.share.session.timeout.ms",
        Kind.INT,
        "45000",
        "Silence after which a member of a share group is removed.",
        check=at_least(1),
    ),
    Setting(
        "group.share.min.session.timeout.ms",
        Kind.INT,
        "45000",
        "The least that a group may set as share.session.timeout.ms.",
        check=at_least(1),
    ),
    Setting(
        "group.share.max.session.timeout.ms",
        Kind.INT,
        "60000",
        "The most that a group may set as share.session.timeout.ms.",
        check=at_least(1),
    ),
    Setting(
        "group.share.heartbeat.interval.ms",
        Kind.INT,
        "5000",
        "How often members of share groups are told to send a heartbeat.",
        check=at_least(1),
    ),
    Setting(
        "group.share.min.heartbeat.interval.ms",
        Kind.INT,
        "5000",
        "The least that a group may set as share.heartbeat.interval.ms.",
        check=at_least(1),
    ),
    Setting(
        "group.share.max.heartbeat.interval.ms",
        Kind.INT,
        "15000",
        "The most that a group may set as share.heartbeat.interval.ms.",
        check=at_least(1),
    ),
    Setting(
        "group.share.assignment.interval.ms",
        Kind.INT,
        "1000",
        "The least time between two assignments of a share group.",
        check=at_least(0),
        update=CLUSTER_WIDE,
    ),
    Setting(
        "group.share.min.assignment.interval.ms",
        Kind.INT,
        "0",
        "The least that a group may set as share.assignment.interval.ms.",
        check=at_least(0),
    ),
    Setting(
        "group.share.max.assignment.interval.ms",
        Kind.INT,
        "15000",
        "The most that a group may set as share.assignment.interval.ms.",
        check=at_least(0),
    ),
    Setting("group.share.max.size", Kind.INT, "200", "Members of one share group.", check=between(1, 1_000)),
    Setting(
        "group.share.delivery.count.limit",
        Kind.INT,
        "5",
        "How often a record is delivered to a share group before it is given up.",
        check=between(2, 10),
    ),
    Setting(
        "group.share.min.delivery.count.limit",
        Kind.INT,
        "2",
        "The least that a group may set as share.delivery.count.limit.",
        check=between(2, 5),
    ),
    Setting(
        "group.share.max.delivery.count.limit",
        Kind.INT,
        "10",
        "The most that a group may set as share.delivery.count.limit.",
        check=between(5, 25),
    ),
    Setting(
        "group.share.record.lock.duration.ms",
        Kind.INT,
        "30000",
        "How long a member of a share group may work on a record.",
        check=between(1_000, 3_600_000),
    ),
    Setting(
        "group.share.min.record.lock.duration.ms",
        Kind.INT,
        "15000",
        "The least that a group may set as share.record.lock.duration.ms.",
        check=between(1_000, 30_000),
    ),
    Setting(
        "group.share.max.record.lock.duration.ms",
        Kind.INT,
        "60000",
        "The most that a group may set as share.record.lock.duration.ms.",
        check=between(30_000, 3_600_000),
    ),
    Setting(
        "group.share.partition.max.record.locks",
        Kind.INT,
        "2000",
        "Records of one partition that a share group may work on at once.",
        check=between(100, 10_000),
    ),
    Setting(
        "group.share.min.partition.max.record.locks",
        Kind.INT,
        "100",
        "The least that a group may set as share.partition.max.record.locks.",
        check=between(100, 2_000),
    ),
    Setting(
        "group.share.max.partition.max.record.locks",
        Kind.INT,
        "4000",
        "The most that a group may set as share.partition.max.record.locks.",
        check=between(2_000, 10_000),
    ),
    Setting(
        "group.share.max.share.sessions", Kind.INT, "2000", "Share sessions that are remembered.", check=at_least(1)
    ),
    Setting(
        "share.coordinator.state.topic.num.partitions",
        Kind.INT,
        "50",
        "Partitions of __share_group_state. Never change it: share groups are found by it.",
        HIGH,
        check=at_least(1),
    ),
    Setting(
        "share.coordinator.state.topic.replication.factor",
        Kind.SHORT,
        "3",
        "Replicas of __share_group_state.",
        HIGH,
        check=at_least(1),
    ),
    Setting(
        "share.coordinator.state.topic.min.isr",
        Kind.SHORT,
        "2",
        "min.insync.replicas of __share_group_state.",
        HIGH,
        check=at_least(1),
    ),
)
