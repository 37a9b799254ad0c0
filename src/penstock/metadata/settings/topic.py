"""Settings of a topic: Kafka 4.3's, and two of our own (`durability`, `record.validation`).

A topic that does not set one uses the broker's value of the first synonym that is set, then the default.
"""

from penstock.metadata.settings.setting import (
    LONG_MAX,
    Check,
    Kind,
    Setting,
    Synonym,
    at_least,
    between,
    gzip_level,
    one_of,
    throttled_replicas,
)

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


def _topic(
    name: str, kind: Kind, default: object, check: Check | None, synonyms: str | tuple[Synonym, ...], documentation: str
) -> Setting:
    if isinstance(synonyms, str):
        synonyms = (Synonym(synonyms),) if synonyms else ()
    return Setting(name, kind, str(default), documentation, check=check, synonyms=synonyms)


_ALL = (
    _topic(
        "cleanup.policy",
        Kind.LIST,
        "delete",
        one_of("compact", "delete"),
        "log.cleanup.policy",
        "How old records go: 'delete' drops segments by age or size, 'compact' keeps the last record of each key. Both "
        "may be given; an empty list keeps everything.",
    ),
    _topic(
        "compression.gzip.level",
        Kind.INT,
        -1,
        gzip_level,
        "compression.gzip.level",
        "The level of gzip where compression.type is gzip; -1 leaves the choice to the library.",
    ),
    _topic(
        "compression.lz4.level",
        Kind.INT,
        9,
        between(1, 17),
        "compression.lz4.level",
        "The level of lz4 where compression.type is lz4.",
    ),
    _topic(
        "compression.type",
        Kind.STRING,
        "producer",
        one_of(*CODECS),
        "compression.type",
        "The codec in which batches are stored. 'producer' keeps each batch as its producer compressed it, the only "
        "choice that costs the broker nothing.",
    ),
    _topic(
        "compression.zstd.level",
        Kind.INT,
        3,
        between(-131072, 22),
        "compression.zstd.level",
        "The level of zstd where compression.type is zstd.",
    ),
    _topic(
        "delete.retention.ms",
        Kind.LONG,
        DAY_MS,
        at_least(0),
        "log.cleaner.delete.retention.ms",
        "How long compaction keeps a tombstone, so that a reader from the beginning still sees the deletion.",
    ),
    Setting(
        "durability",
        Kind.STRING,
        "fsync",
        "When an append counts as durable: 'fsync' once it lies on stable storage, which survives a power cut of every "
        "node at once; 'replicated' once it is written, which is how Kafka behaves. Not a setting of Kafka.",
        check=one_of("fsync", "replicated"),
        synonyms=(Synonym("log.durability"),),
    ),
    _topic(
        "file.delete.delay.ms",
        Kind.LONG,
        60_000,
        at_least(0),
        "log.segment.delete.delay.ms",
        "How long a deleted segment's file stays on disk before it is removed.",
    ),
    _topic(
        "flush.messages",
        Kind.LONG,
        LONG_MAX,
        at_least(1),
        "log.flush.interval.messages",
        "Sync after this many records, for topics with durability 'replicated'. Replication is the better safeguard.",
    ),
    _topic(
        "flush.ms",
        Kind.LONG,
        LONG_MAX,
        at_least(0),
        (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
        "Sync after this much time, for topics with durability 'replicated'. Replication is the better safeguard.",
    ),
    _topic(
        "follower.replication.throttled.replicas",
        Kind.LIST,
        "",
        throttled_replicas,
        "",
        "Replicas whose fetching is throttled, as partition:broker pairs or '*' for all.",
    ),
    _topic(
        "index.interval.bytes",
        Kind.INT,
        4096,
        at_least(0),
        "log.index.interval.bytes",
        "How many bytes lie between two entries of the sparse offset index.",
    ),
    Setting(
        "internal.segment.bytes",
        Kind.INT,
        None,
        "Overrides segment.bytes below its lower bound. For tests.",
        is_internal=True,
    ),
    _topic(
        "leader.replication.throttled.replicas",
        Kind.LIST,
        "",
        throttled_replicas,
        "",
        "Replicas that leaders serve at a throttled rate, as partition:broker pairs or '*' for all.",
    ),
    _topic(
        "local.retention.bytes",
        Kind.LONG,
        -2,
        at_least(-2),
        "log.local.retention.bytes",
        "How many bytes of a tiered partition stay on local disk; -2 takes retention.bytes.",
    ),
    _topic(
        "local.retention.ms",
        Kind.LONG,
        -2,
        at_least(-2),
        "log.local.retention.ms",
        "How long a tiered partition's segments stay on local disk; -2 takes retention.ms.",
    ),
    _topic(
        "max.compaction.lag.ms",
        Kind.LONG,
        LONG_MAX,
        at_least(1),
        "log.cleaner.max.compaction.lag.ms",
        "The longest that a record may wait for compaction.",
    ),
    _topic(
        "max.message.bytes",
        Kind.INT,
        1_048_588,
        at_least(0),
        "message.max.bytes",
        "The largest record batch that is accepted, as it lies on the wire. Consumers still receive a batch that is "
        "larger than their own limits.",
    ),
    _topic(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        HOUR_MS,
        at_least(0),
        "log.message.timestamp.after.max.ms",
        "How far ahead of the broker's clock a producer's timestamp may lie. Not asked where the broker sets the time.",
    ),
    _topic(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        LONG_MAX,
        at_least(0),
        "log.message.timestamp.before.max.ms",
        "How far behind the broker's clock a producer's timestamp may lie. Not asked where the broker sets the time.",
    ),
    _topic(
        "message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        "log.message.timestamp.type",
        "Whose time a record carries: its producer's (CreateTime) or that of its arrival (LogAppendTime).",
    ),
    _topic(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        0.5,
        between(0, 1),
        "log.cleaner.min.cleanable.ratio",
        "The share of a log that must be new since the last compaction before it is compacted again.",
    ),
    _topic(
        "min.compaction.lag.ms",
        Kind.LONG,
        0,
        at_least(0),
        "log.cleaner.min.compaction.lag.ms",
        "The shortest time that a record stays before compaction may remove it.",
    ),
    _topic(
        "min.insync.replicas",
        Kind.INT,
        1,
        at_least(1),
        "min.insync.replicas",
        "How many replicas must be in sync before a write with acks=all is accepted and acknowledged.",
    ),
    _topic(
        "preallocate",
        Kind.BOOLEAN,
        "false",
        None,
        "log.preallocate",
        "Reserve a segment's whole file when it is created.",
    ),
    Setting(
        "record.validation",
        Kind.STRING,
        "header",
        "How far a produced batch is opened before it is appended: 'header' checks header and checksum, 'full' reads "
        "every record, as Kafka does. Not a setting of Kafka.",
        check=one_of("header", "full"),
        synonyms=(Synonym("log.record.validation"),),
    ),
    _topic(
        "remote.log.copy.disable",
        Kind.BOOLEAN,
        "false",
        None,
        "",
        "Copy no more segments of this topic to remote storage; what is there stays readable.",
    ),
    _topic(
        "remote.log.delete.on.disable",
        Kind.BOOLEAN,
        "false",
        None,
        "",
        "Delete the remote segments when remote.storage.enable is turned off.",
    ),
    _topic(
        "remote.storage.enable",
        Kind.BOOLEAN,
        "false",
        None,
        "",
        "Move sealed segments of this topic to remote storage.",
    ),
    _topic(
        "retention.bytes",
        Kind.LONG,
        -1,
        None,
        "log.retention.bytes",
        "How many bytes a partition keeps before it drops old segments; -1 for no limit. It counts per partition.",
    ),
    _topic(
        "retention.ms",
        Kind.LONG,
        7 * DAY_MS,
        at_least(-1),
        (
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", MINUTE_MS),
            Synonym("log.retention.hours", HOUR_MS),
        ),
        "How long a record is kept before its segment is dropped; -1 for ever.",
    ),
    _topic(
        "segment.bytes",
        Kind.INT,
        1 << 30,
        at_least(1 << 20),
        "log.segment.bytes",
        "The size at which a log begins a new segment file. Retention and compaction work on whole segments.",
    ),
    _topic(
        "segment.index.bytes",
        Kind.INT,
        10 << 20,
        at_least(4),
        "log.index.size.max.bytes",
        "The largest index that a segment may have before a new one begins.",
    ),
    _topic(
        "segment.jitter.ms",
        Kind.LONG,
        0,
        at_least(0),
        (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS)),
        "Begin a new segment up to this much earlier, by chance, so that not all partitions do it at once.",
    ),
    _topic(
        "segment.ms",
        Kind.LONG,
        7 * DAY_MS,
        at_least(1),
        (Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS)),
        "The age at which a log begins a new segment even if the present one is not full.",
    ),
    _topic(
        "unclean.leader.election.enable",
        Kind.BOOLEAN,
        "false",
        None,
        "unclean.leader.election.enable",
        "Let a replica that is not in sync become leader when nobody else is left. It loses acknowledged records.",
    ),
)

TOPIC_SETTINGS = {setting.name: setting for setting in _ALL}
"""Every setting of a topic, by name."""
