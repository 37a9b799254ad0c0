"""Result of a probe of the metadata quorum: which controllers answer, and what is known about a majority of them."""

from dataclasses import dataclass
from enum import StrEnum

from penstock.client.admin.quorum import QuorumDescription

UNKNOWN_ID = -1


class Majority(StrEnum):
    """What is known about a majority of controllers."""

    CONFIRMED = "confirmed"
    """A majority follows a leader."""
    LOST = "lost"
    """Fewer controllers than a majority answer."""
    LEADERLESS = "leaderless"
    """A majority answers, but no leader that a majority follows was found."""
    UNREPORTED = "unreported"
    """This cluster does not describe its quorum, or not to this client."""


@dataclass(frozen=True, slots=True)
class Controller:
    """A voter of the quorum, or an address from the configuration of brokers, and whether it answered."""

    node_id: int
    """-1 if only the address is known."""
    address: str
    failure: str | None
    """Why it did not answer; None if it did."""


@dataclass(frozen=True, slots=True)
class QuorumProbe:
    """The result of a probe."""

    majority: Majority
    controllers: tuple[Controller, ...]
    quorum: QuorumDescription | None
    """The answer of the leader, if one was found."""
    is_reached: bool
    """Whether a broker of the bootstrap list answered."""
    waited_ms: int

    @property
    def answering(self) -> int:
        """The number of controllers that answered."""
        return sum(each.failure is None for each in self.controllers)

    @property
    def count_text(self) -> str:
        """`1 of 3 controllers answers`."""
        if not self.controllers:
            return "no controller is known"
        return f"{self.answering} of {len(self.controllers)} controllers answer{'s' * (self.answering == 1)}"
