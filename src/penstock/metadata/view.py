"""What a decision of the controller may look at, and the bounds of what one command may do."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from penstock.metadata.image import Image
from penstock.metadata.settings.layers import BrokerSettings
from penstock.model.ports import Entropy

K = TypeVar("K", bound=Hashable)

RECORDS_PER_COMMAND_MAX: Final = 10_000
"""A command's records are committed together, so they must fit into one batch."""
PARTITIONS_PER_COMMAND_MAX: Final = 10_000

TOO_MANY_RECORDS: Final = "Unable to perform excessively large batch operation."


@dataclass(frozen=True, slots=True)
class View:
    """What a decision may look at."""

    image: Image
    settings: BrokerSettings
    entropy: Entropy


def repeated(names: Iterable[K]) -> dict[K, int]:
    """How often each appears, in order."""
    counts: dict[K, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts
