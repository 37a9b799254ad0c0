"""The arguments of `consume`, validated before any request is sent."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from penstock.client.arguments import check_fields
from penstock.client.consumer.consumer import OutOfRangeName, Start, check_batch, check_out_of_range, check_start
from penstock.client.consumer.fetcher import FetchSettings
from penstock.client.offsets import Isolation

IsolationName = Literal["read_uncommitted", "read_committed"]


@dataclass(frozen=True, slots=True)
class Reading:
    """See the module. Raises ValueError for invalid arguments."""

    topic: str | Sequence[str]
    start: Start = "earliest"
    partitions: Iterable[int] | None = None
    until_end: bool = False
    isolation: IsolationName = "read_uncommitted"
    max_batch: int = 500
    idle_ms_max: int | None = None
    group: str | None = None
    instance_id: str | None = None
    out_of_range: OutOfRangeName = "error"
    topics: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "topics", topic_names(self.topic))
        if self.partitions is not None:
            object.__setattr__(self, "partitions", tuple(self.partitions))
        check_start(self.start)
        check_batch(self.max_batch)
        check_out_of_range(self.out_of_range)
        if self.isolation.upper() not in Isolation.__members__:
            raise ValueError(f'isolation is "read_uncommitted" or "read_committed", not {self.isolation!r}')
        if self.idle_ms_max is not None and self.idle_ms_max < 0:
            raise ValueError(f"idle_ms_max is a time in milliseconds, not {self.idle_ms_max}")
        if self.group is None:
            if self.instance_id is not None:
                raise ValueError("instance_id names a member of a group: give group, too, or leave it out")
            return
        check_group(self.group, self.start, self.instance_id)
        if self.partitions is not None:
            raise ValueError("a group shares out partitions by itself: leave out either group or partitions")
        if self.until_end:
            raise ValueError("a member of a group has no end of its own: use idle_ms_max, or leave the loop")

    @property
    def fetching(self) -> FetchSettings:
        """The fetch settings: a broker waits for records at most half of `idle_ms_max`."""
        settings = FetchSettings(isolation=Isolation[self.isolation.upper()])
        if self.idle_ms_max is None:
            return settings
        return replace(settings, wait_ms_max=min(settings.wait_ms_max, self.idle_ms_max // 2))


def topic_names(topic: str | Sequence[str]) -> tuple[str, ...]:
    """Normalizes one or several topic names to a tuple without duplicates."""
    names = (topic,) if isinstance(topic, str) else tuple(topic)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"name a topic, or several: not {topic!r}")
    return tuple(dict.fromkeys(names))


def check_group(group: str, start: Start, instance_id: str | None) -> None:
    """Raises ValueError if the group name, start or instance id of a member is invalid."""
    check_group_name(group)
    check_start(start)
    if isinstance(start, int):
        raise ValueError('a group starts at "earliest", "latest" or At(timestamp_ms), not at one offset for all')
    if instance_id == "":
        raise ValueError("an instance_id needs a name: give every process its own, or leave it out")


def check_group_name(group: str) -> None:
    """Raises ValueError if the group name is empty or not a string."""
    if not isinstance(group, str) or not group:
        raise ValueError(f"a group needs a name, not {group!r}")
