"""Throttles of reassignments: one setting of a Penstock cluster, several settings for each move on Apache Kafka.

Settings that were changed for a move are restored after it. Penstock throttles by default, so that nothing has to be
set there.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from penstock.cli.errors import Misused
from penstock.cli.reassign.plan import Move
from penstock.client.admin.configs import ConfigEntry, ConfigKind, ConfigSource
from penstock.client.client import Client
from penstock.client.errors import ClientError, Unreachable

DEFAULT_BYTES_PER_SECOND = 50 * 1024 * 1024
UNLIMITED = 1 << 50
OURS = "reassignment.bytes.per.second.max"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3}


def parse_rate(text: str) -> int:
    """`50MB` or a plain number, in bytes per second; `none` for no limit."""
    plain = text.strip().lower().removesuffix("/s").removesuffix("b")
    if plain == "none":
        return UNLIMITED
    unit = plain[-1:] if plain[-1:] in "kmg" else ""
    try:
        rate = int(float(plain.removesuffix(unit)) * _UNITS[unit])
    except ValueError:
        rate = 0
    if rate < 1:
        raise Misused(f"--throttle {text!r} is no rate: give 50MB, 800kB, a number of bytes per second, or none")
    return rate


async def settings_of_any_broker(client: Client, names: Sequence[str]) -> dict[str, ConfigEntry]:
    """Settings of the first broker that answers: one that was just killed is listed for a while."""
    failure: ClientError | None = None
    for node_id in sorted(client.cluster.view.brokers):
        try:
            return await client.admin.describe_configs(ConfigKind.BROKER, str(node_id), names=names, timeout_ms=1)
        except ClientError as error:
            if not error.is_retriable:
                raise
            failure = error
    raise failure or Unreachable("the cluster has no brokers")


class Throttle(Protocol):
    """The throttle of one cluster, for some moves."""

    @property
    def trace(self) -> str | None:
        """The lasting effect if it is not taken back, and what to do instead; None if there is none."""

    async def set(self) -> None:
        """Sets the throttle, before the moves begin."""

    async def take_back(self) -> None:
        """Removes the throttle, when the moves are done."""


async def throttle_for(client: Client, moves: Sequence[Move], rate: int | None) -> Throttle:
    """The throttle of this kind of cluster; without a rate, at the cluster's setting or the default."""
    entries = await settings_of_any_broker(client, [OURS])
    if OURS in entries:
        entry = entries[OURS]
        return OurThrottle(client, rate, entry.value if entry.source is ConfigSource.ALL_BROKERS else None)
    return KafkaThrottle(client, moves, DEFAULT_BYTES_PER_SECOND if rate is None else rate)


class OurThrottle:
    """Penstock's throttle: one setting, for all moves to a broker together."""

    def __init__(self, client: Client, rate: int | None, before: str | None) -> None:
        self._client = client
        self._rate = rate
        self._before = before

    @property
    def trace(self) -> str | None:
        """None without a rate: the setting is not changed then."""
        return None if self._rate is None else "--throttle would be the pace of later moves, too: leave it out"

    async def set(self) -> None:
        """Changes the setting, if a rate was requested."""
        if self._rate is not None:
            await self._client.admin.alter_configs(ConfigKind.BROKER, "", {OURS: str(self._rate)})

    async def take_back(self) -> None:
        """Restores the previous value."""
        if self._rate is not None:
            await self._client.admin.alter_configs(ConfigKind.BROKER, "", {OURS: self._before})


class KafkaThrottle:
    """The throttle of `kafka-reassign-partitions`: rates of brokers, and replicas to which they apply."""

    def __init__(self, client: Client, moves: Sequence[Move], rate: int) -> None:
        self._client = client
        self._moves = [each for each in moves if each.adding]
        self._rate = rate

    @property
    def trace(self) -> str | None:
        """The rates and the lists of replicas would stay set."""
        if self._rate == UNLIMITED:
            return None
        return "the throttle would slow down followers that catch up later: say --throttle none"

    async def set(self) -> None:
        """Sets rates and replicas on every broker and topic that takes part in the moves."""
        if self._rate == UNLIMITED:
            return
        for broker in self._brokers():
            await self._client.admin.alter_configs(
                ConfigKind.BROKER, str(broker), dict.fromkeys(RATES, str(self._rate))
            )
        for topic, values in self._replicas().items():
            await self._client.admin.alter_configs(ConfigKind.TOPIC, topic, values)

    async def take_back(self) -> None:
        """Removes the settings from all of them."""
        if self._rate == UNLIMITED:
            return
        for topic in self._replicas():
            await self._client.admin.alter_configs(ConfigKind.TOPIC, topic, dict.fromkeys(REPLICAS))
        for broker in self._brokers():
            await self._client.admin.alter_configs(ConfigKind.BROKER, str(broker), dict.fromkeys(RATES))

    def _brokers(self) -> Iterable[int]:
        return sorted({broker for move in self._moves for broker in (*move.before, *move.after)})

    def _replicas(self) -> Mapping[str, Mapping[str, str]]:
        topics: dict[str, tuple[list[str], list[str]]] = {}
        for move in self._moves:
            leaders, followers = topics.setdefault(move.partition.topic, ([], []))
            leaders += [f"{move.partition.partition}:{broker}" for broker in move.before]
            followers += [f"{move.partition.partition}:{broker}" for broker in move.adding]
        return {topic: dict(zip(REPLICAS, map(",".join, values), strict=True)) for topic, values in topics.items()}
