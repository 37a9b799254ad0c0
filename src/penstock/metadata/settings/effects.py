"""Settings that are accepted and have no effect in this version, or not all of it, and what is true instead.

`penstock server`, `penstock config check`, brokers that answer clients, and docs/configuration.md use this declaration.
docs/pages/effects.py looks up which names the code reads; a test compares the two, so neither can drift.
"""

from collections.abc import Mapping
from typing import Final

from penstock.metadata.settings.setting import Setting
from penstock.model.setting_gap import SettingGap

_UNTRUE: Final[Mapping[str, tuple[str, ...]]] = {
    "nothing is compacted yet": (
        "delete.retention.ms",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.delete.retention.ms",
        "log.cleaner.enable",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.max.compaction.lag.ms",
        "log.cleaner.min.cleanable.ratio",
        "log.cleaner.min.compaction.lag.ms",
        "log.cleaner.threads",
        "max.compaction.lag.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
    ),
    "a batch stays as its producer compressed it": (
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
    ),
    "there is no remote storage yet": (
        "local.retention.bytes",
        "local.retention.ms",
        "log.local.retention.bytes",
        "log.local.retention.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.log.storage.system.enable",
        "remote.storage.enable",
    ),
    "there is no TLS yet": (
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    ),
    "there are no logins yet": (
        "connection.failed.authentication.delay.ms",
        "connections.max.reauth.ms",
        "delegation.token.expiry.time.ms",
        "delegation.token.max.lifetime.ms",
        "delegation.token.secret.key",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.mechanism.inter.broker.protocol",
        "sasl.server.max.receive.size",
    ),
    "there is no access control yet": ("authorizer.class.name",),
    "there are no quotas of clients yet": ("quota.window.num", "quota.window.size.seconds"),
    "no metrics of clients are collected": ("telemetry.max.bytes",),
    "one event loop serves all requests, with workers beside it": (
        "background.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    ),
    "the limit is built in": (
        "connections.max.idle.ms",
        "fetch.max.bytes",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "max.incremental.fetch.session.cache.slots",
        "offsets.commit.timeout.ms",
        "queued.max.request.bytes",
        "queued.max.requests",
        "request.timeout.ms",
        "socket.request.max.bytes",
    ),
    "it is left to the system": (
        "socket.listen.backlog.size",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
    ),
    "only `reassignment.bytes.per.second.max` throttles replicas": (
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
    ),
    "files take the room that their records need": ("log.preallocate", "preallocate"),
    "files are removed without delay": ("file.delete.delay.ms", "log.segment.delete.delay.ms"),
    "indexes have no limit of their own": ("log.index.size.max.bytes", "segment.index.bytes"),
    "segments begin without jitter": ("log.roll.jitter.hours", "log.roll.jitter.ms", "segment.jitter.ms"),
    "the metadata log lies in `log.dirs`": ("metadata.log.dir",),
    "the metadata log and its snapshots have their own rules": (
        "controller.quorum.append.linger.ms",
        "controller.quorum.election.backoff.max.ms",
        "metadata.log.segment.bytes",
        "metadata.log.segment.ms",
        "metadata.max.retention.bytes",
        "metadata.max.retention.ms",
    ),
    "a broker tries until it is registered": ("initial.broker.registration.timeout.ms",),
    "a broker that stops always hands over what it leads": ("controlled.shutdown.enable",),
    "commits are stored uncompressed": ("offsets.topic.compression.codec",),
    "there are no transactions yet": (
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "transaction.max.timeout.ms",
        "transaction.partition.verification.enable",
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "transaction.two.phase.commit.enable",
        "transactional.id.expiration.ms",
    ),
    "there are no share groups yet": (
        "group.share.assignment.interval.ms",
        "group.share.delivery.count.limit",
        "group.share.heartbeat.interval.ms",
        "group.share.max.assignment.interval.ms",
        "group.share.max.delivery.count.limit",
        "group.share.max.heartbeat.interval.ms",
        "group.share.max.partition.max.record.locks",
        "group.share.max.record.lock.duration.ms",
        "group.share.max.session.timeout.ms",
        "group.share.max.share.sessions",
        "group.share.max.size",
        "group.share.min.assignment.interval.ms",
        "group.share.min.delivery.count.limit",
        "group.share.min.heartbeat.interval.ms",
        "group.share.min.partition.max.record.locks",
        "group.share.min.record.lock.duration.ms",
        "group.share.min.session.timeout.ms",
        "group.share.partition.max.record.locks",
        "group.share.record.lock.duration.ms",
        "group.share.session.timeout.ms",
        "share.assignment.interval.ms",
        "share.auto.offset.reset",
        "share.delivery.count.limit",
        "share.heartbeat.interval.ms",
        "share.isolation.level",
        "share.partition.max.record.locks",
        "share.record.lock.duration.ms",
        "share.renew.acknowledge.enable",
        "share.session.timeout.ms",
    ),
    "there are no streams groups yet": (
        "group.streams.assignment.interval.ms",
        "group.streams.heartbeat.interval.ms",
        "group.streams.initial.rebalance.delay.ms",
        "group.streams.max.assignment.interval.ms",
        "group.streams.max.heartbeat.interval.ms",
        "group.streams.max.session.timeout.ms",
        "group.streams.max.standby.replicas",
        "group.streams.min.assignment.interval.ms",
        "group.streams.min.heartbeat.interval.ms",
        "group.streams.min.session.timeout.ms",
        "group.streams.num.standby.replicas",
        "group.streams.session.timeout.ms",
        "streams.assignment.interval.ms",
        "streams.heartbeat.interval.ms",
        "streams.initial.rebalance.delay.ms",
        "streams.num.standby.replicas",
        "streams.session.timeout.ms",
    ),
}
_SERVED: Final[Mapping[str, tuple[str, ...]]] = {
    "compression.type": ("producer",),
    "controlled.shutdown.enable": ("true",),
    "log.cleaner.enable": ("false",),
    "log.preallocate": ("false",),
    "log.roll.jitter.hours": ("0",),
    "log.roll.jitter.ms": ("0",),
    "offsets.topic.compression.codec": ("0",),
    "preallocate": ("false",),
    "remote.log.copy.disable": ("false", "true"),
    "remote.log.delete.on.disable": ("false", "true"),
    "remote.log.storage.system.enable": ("false",),
    "remote.storage.enable": ("false",),
    "segment.jitter.ms": ("0",),
    "ssl.client.auth": ("none",),
    "transaction.two.phase.commit.enable": ("false",),
}
"""Values of these settings that describe what this version does anyway."""

_NOT_COMPACTED: Final = SettingGap(
    "nothing is compacted yet, and with `compact` alone everything is kept", ("delete",), is_partial=True
)
GAPS: Final[Mapping[str, SettingGap]] = {
    **{name: SettingGap(why, _SERVED.get(name, ())) for why, names in _UNTRUE.items() for name in names},
    "cleanup.policy": _NOT_COMPACTED,
    "log.cleanup.policy": _NOT_COMPACTED,
}
"""By the names of settings of brokers, topics and groups."""

_UNKNOWN: Final = SettingGap("this version has no such setting")
_ONE_LISTENER: Final = SettingGap("settings of a single listener are not read yet")


def without_effect(given: Mapping[str, str], known: Mapping[str, Setting]) -> dict[str, SettingGap]:
    """The settings whose values ask for something that is missing. `known` are all settings of such a resource."""
    gaps = {}
    for name, text in given.items():
        if name not in known:
            gap = _ONE_LISTENER if name.startswith("listener.name.") else _UNKNOWN
        elif name in GAPS:
            gap = GAPS[name]
        else:
            continue
        if gap.concerns(text):
            gaps[name] = gap
    return gaps


def listed(gaps: Mapping[str, SettingGap]) -> str:
    """The settings in one line, those with the same reason together."""
    by_reason: dict[SettingGap, list[str]] = {}
    for name in sorted(gaps):
        by_reason.setdefault(gaps[name], []).append(name)
    return "; ".join(f"{', '.join(names)} ({gap.why})" for gap, names in by_reason.items())
