"""Settings of a broker's groups: classic, consumer and streams."""

from penstock.metadata.settings.setting import INT_MAX, Kind, Setting, Update, at_least, one_of, one_of_any_case

CLUSTER_WIDE = Update.CLUSTER_WIDE

SETTINGS = (
    Setting(
        "group.min.session.timeout.ms", Kind.INT, "6000", "The shortest session that a classic member may ask for."
    ),
    Setting(
        "group.max.session.timeout.ms", Kind.INT, "1800000", "The longest session that a classic member may ask for."
    ),
    Setting(
        "group.initial.rebalance.delay.ms",
        Kind.INT,
        "3000",
        "How long an empty classic group waits for more members before its first assignment.",
    ),
    Setting("group.max.size", Kind.INT, str(INT_MAX), "Members of one classic group.", check=at_least(1)),
    Setting(
        "group.coordinator.rebalance.protocols",
        Kind.LIST,
        "classic,consumer,streams",
        "Kinds of groups that are served.",
        check=one_of("consumer", "classic", "share", "streams"),
    ),
    Setting(
        "group.consumer.session.timeout.ms",
        Kind.INT,
        "45000",
        "Silence after which a member of a consumer group is removed.",
        check=at_least(1),
    ),
    Setting(
        "group.consumer.min.session.timeout.ms",
        Kind.INT,
        "45000",
        "The least that a group may set as consumer.session.timeout.ms.",
        check=at_least(1),
    ),
    Setting(
        "group.consumer.max.session.timeout.ms",
        Kind.INT,
        "60000",
        "The most that a group may set as consumer.session.timeout.ms.",
        check=at_least(1),
    ),
    Setting(
        "group.consumer.heartbeat.interval.ms",
        Kind.INT,
        "5000",
        "How often members of consumer groups are told to send a heartbeat.",
        check=at_least(1),
    ),
    Setting(
        "group.consumer.min.heartbeat.interval.ms",
        Kind.INT,
        "5000",
        "The least that a group may set as consumer.heartbeat.interval.ms.",
        check=at_least(1),
    ),
    Setting(
        "group.consumer.max.heartbeat.interval.ms",
        Kind.INT,
        "15000",
        "The most that a group may set as consumer.heartbeat.interval.ms.",
        check=at_least(1),
    ),
    Setting(
        "group.consumer.assignment.interval.ms",
        Kind.INT,
        "1000",
        "The least time between two assignments of a consumer group.",
        check=at_least(0),
        update=CLUSTER_WIDE,
    ),
    Setting(
        "group.consumer.min.assignment.interval.ms",
        Kind.INT,
        "0",
        "The least that a group may set as consumer.assignment.interval.ms.",
        check=at_least(0),
    ),
    Setting(
        "group.consumer.max.assignment.interval.ms",
        Kind.INT,
        "15000",
        "The most that a group may set as consumer.assignment.interval.ms.",
        check=at_least(0),
    ),
    Setting("group.consumer.max.size", Kind.INT, str(INT_MAX), "Members of one consumer group.", check=at_least(1)),
    Setting(
        "group.consumer.assignors",
        Kind.LIST,
        "uniform,range",
        "Assignors of consumer groups; the first one is the default.",
    ),
    Setting(
        "group.consumer.migration.policy",
        Kind.STRING,
        "bidirectional",
        "Which conversions between classic and consumer groups are allowed.",
        check=one_of_any_case("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
    ),
    Setting(
        "group.streams.session.timeout.ms",
        Kind.INT,
        "45000",
        "Silence after which a member of a streams group is removed.",
        check=at_least(1),
    ),
    Setting(
        "group.streams.min.session.timeout.ms",
        Kind.INT,
        "45000",
        "The least that a group may set as streams.session.timeout.ms.",
        check=at_least(1),
    ),
    Setting(
        "group.streams.max.session.timeout.ms",
        Kind.INT,
        "60000",
        "The most that a group may set as streams.session.timeout.ms.",
        check=at_least(1),
    ),
    Setting(
        "group.streams.heartbeat.interval.ms",
        Kind.INT,
        "5000",
        "How often members of streams groups are told to send a heartbeat.",
        check=at_least(1),
    ),
    Setting(
        "group.streams.min.heartbeat.interval.ms",
        Kind.INT,
        "5000",
        "The least that a group may set as streams.heartbeat.interval.ms.",
        check=at_least(1),
    ),
    Setting(
        "group.streams.max.heartbeat.interval.ms",
        Kind.INT,
        "15000",
        "The most that a group may set as streams.heartbeat.interval.ms.",
        check=at_least(1),
    ),
    Setting(
        "group.streams.assignment.interval.ms",
        Kind.INT,
        "1000",
        "The least time between two assignments of a streams group.",
        check=at_least(0),
        update=CLUSTER_WIDE,
    ),
    Setting(
        "group.streams.min.assignment.interval.ms",
        Kind.INT,
        "0",
        "The least that a group may set as streams.assignment.interval.ms.",
        check=at_least(0),
    ),
    Setting(
        "group.streams.max.assignment.interval.ms",
        Kind.INT,
        "15000",
        "The most that a group may set as streams.assignment.interval.ms.",
        check=at_least(0),
    ),
    Setting(
        "group.streams.num.standby.replicas", Kind.INT, "0", "Standby copies of each stateful task.", check=at_least(0)
    ),
    Setting(
        "group.streams.max.standby.replicas",
        Kind.INT,
        "2",
        "The most that a group may set as streams.num.standby.replicas.",
        check=at_least(0),
    ),
    Setting(
        "group.streams.initial.rebalance.delay.ms",
        Kind.INT,
        "3000",
        "How long an empty streams group waits for more members before its first assignment.",
        check=at_least(0),
    ),
)
