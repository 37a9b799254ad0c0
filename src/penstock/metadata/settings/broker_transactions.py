"""Settings of a broker's offsets, transactions and producers."""

from penstock.metadata.settings.setting import Importance, Kind, Setting, Update, at_least

HIGH = Importance.HIGH
LOW = Importance.LOW
CLUSTER_WIDE = Update.CLUSTER_WIDE

SETTINGS = (
    Setting(
        "offsets.topic.num.partitions",
        Kind.INT,
        "50",
        "Partitions of __consumer_offsets. Never change it: groups are found by it.",
        HIGH,
        check=at_least(1),
    ),
    Setting(
        "offsets.topic.replication.factor", Kind.SHORT, "3", "Replicas of __consumer_offsets.", HIGH, check=at_least(1)
    ),
    Setting(
        "offsets.topic.segment.bytes",
        Kind.INT,
        "104857600",
        "The segment size of __consumer_offsets.",
        HIGH,
        check=at_least(1),
    ),
    Setting(
        "offsets.topic.compression.codec",
        Kind.INT,
        "0",
        "The codec of records in __consumer_offsets, by its number.",
        HIGH,
    ),
    Setting(
        "offsets.retention.minutes",
        Kind.INT,
        "10080",
        "How long an empty group's offsets are kept.",
        HIGH,
        check=at_least(1),
    ),
    Setting(
        "offsets.retention.check.interval.ms",
        Kind.LONG,
        "600000",
        "How often offsets are looked through for expired ones.",
        HIGH,
        check=at_least(1),
    ),
    Setting(
        "offsets.commit.timeout.ms",
        Kind.INT,
        "5000",
        "How long a commit of offsets may wait for its replicas.",
        HIGH,
        check=at_least(1),
    ),
    Setting("offset.metadata.max.bytes", Kind.INT, "4096", "The longest note that a committed offset may carry.", HIGH),
    Setting(
        "transaction.state.log.num.partitions",
        Kind.INT,
        "50",
        "Partitions of __transaction_state. Never change it: transactions are found by it.",
        HIGH,
        check=at_least(1),
    ),
    Setting(
        "transaction.state.log.replication.factor",
        Kind.SHORT,
        "3",
        "Replicas of __transaction_state.",
        HIGH,
        check=at_least(1),
    ),
    Setting(
        "transaction.state.log.min.isr",
        Kind.INT,
        "2",
        "min.insync.replicas of __transaction_state.",
        HIGH,
        check=at_least(1),
    ),
    Setting(
        "transaction.state.log.segment.bytes",
        Kind.INT,
        "104857600",
        "The segment size of __transaction_state.",
        HIGH,
        check=at_least(1),
    ),
    Setting(
        "transaction.max.timeout.ms",
        Kind.INT,
        "900000",
        "The longest time-out that a transaction may ask for.",
        HIGH,
        check=at_least(1),
    ),
    Setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Kind.INT,
        "10000",
        "How often transactions are looked through for timed-out ones.",
        LOW,
        check=at_least(1),
    ),
    Setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Kind.INT,
        "3600000",
        "How often transactional ids are looked through for expired ones.",
        LOW,
        check=at_least(1),
    ),
    Setting(
        "transaction.partition.verification.enable",
        Kind.BOOLEAN,
        "true",
        "Check on every append that the partition was added to the transaction.",
        LOW,
        update=CLUSTER_WIDE,
    ),
    Setting(
        "transaction.two.phase.commit.enable",
        Kind.BOOLEAN,
        "false",
        "Let an outside coordinator commit transactions in two phases.",
        LOW,
    ),
    Setting(
        "transactional.id.expiration.ms",
        Kind.INT,
        "604800000",
        "How long an unused transactional id is remembered.",
        HIGH,
        check=at_least(1),
    ),
    Setting(
        "producer.id.expiration.ms",
        Kind.INT,
        "86400000",
        "How long a partition remembers a producer that is silent.",
        LOW,
        check=at_least(1),
        update=CLUSTER_WIDE,
    ),
)
