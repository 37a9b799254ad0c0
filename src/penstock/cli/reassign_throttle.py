"""How fast moves may go: one setting of a Penstock cluster, a handful of settings for each move on Apache Kafka.

Whatever was set for a move is taken back after it. Penstock throttles by itself, so that there nothing has to be set.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from penstock.cli.failing import Misused
from penstock.cli.reassign_plan import Move
from penstock.client.client import Client
from penstock.client.configs import ConfigKind, ConfigSource

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


class Throttle(Protocol):
    """Of one cluster, for some moves."""

    @property
    def trace(self) -> str | None:
        """What it leaves behind when nobody takes it back, and what to do instead; None if nothing."""

    async def set(self) -> None:
        """Before they begin."""

    async def take_back(self) -> None:
        """When they are done."""


async def throttle_for(client: Client, moves: Sequence[Move], rate: int | None) -> Throttle:
    """As the cluster has it; without a rate as it is set, or by default."""
    entries = await client.admin.describe_configs(
        ConfigKind.BROKER, str(min(client.cluster.view.brokers)), names=[OURS]
    )
    if OURS in entries:
        entry = entries[OURS]
        return OurThrottle(client, rate, entry.value if entry.source is ConfigSource.ALL_BROKERS else None)
    return KafkaThrottle(client, moves, DEFAULT_BYTES_PER_SECOND if rate is None else rate)


class OurThrottle:
    """One setting, for all moves to a broker together."""

    def __init__(self, client: Client, rate: int | None, before: str | None) -> None:
        self._client = client
        self._rate = rate
        self._before = before

    @property
    def trace(self) -> str | None:
        """Without a rate of its own the setting stays as it is."""
        return None if self._rate is None else "--throttle would be the pace of later moves, too: leave it out"

    async def set(self) -> None:
        """Only where another rate was asked for."""
        if self._rate is not None:
            await self._client.admin.alter_configs(ConfigKind.BROKER, "", {OURS: str(self._rate)})

    async def take_back(self) -> None:
        """To what it was."""
        if self._rate is not None:
            await self._client.admin.alter_configs(ConfigKind.BROKER, "", {OURS: self._before})


class KafkaThrottle:
    """As `kafka-reassign-partitions` sets it: rates of brokers, and replicas to which they apply."""

    def __init__(self, client: Client, moves: Sequence[Move], rate: int) -> None:
        self._client = client
        self._moves = [each for each in moves if each.adding]
        self._rate = rate

    @property
    def trace(self) -> str | None:
        """Rates and lists of replicas."""
        if self._rate == UNLIMITED:
            return None
        return "the throttle would slow down followers that catch up later: say --throttle none"

    async def set(self) -> None:
        """On every broker and topic that has a part in the moves."""
        if self._rate == UNLIMITED:
            return
        for broker in self._brokers():
            await self._client.admin.alter_configs(
                ConfigKind.BROKER, str(broker), dict.fromkeys(RATES, str(self._rate))
            )
        for topic, values in self._replicas().items():
            await self._client.admin.alter_configs(ConfigKind.TOPIC, topic, values)

    async def take_back(self) -> None:
        """Everywhere."""
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
