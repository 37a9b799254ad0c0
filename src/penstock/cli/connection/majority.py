"""What a command reports if no majority of controllers is confirmed, and work that begins only with one."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from penstock.cli.errors import Failed

if TYPE_CHECKING:
    from penstock.client.admin.majority import Controller, QuorumProbe
    from penstock.client.client import Client

T = TypeVar("T")

AGAIN_MS = 900
"""For the second probe, after work that has failed: a command ends within a second after its --timeout."""
WORKS = (
    "reads and writes of partitions whose leader is alive; writes with acks=all only while every in-sync replica of "
    "the partition is alive"
)
STOPS = (
    "creating, changing or deleting topics and settings; electing leaders, changing in-sync replicas, moving replicas; "
    "letting brokers back in; new ids for idempotent producers; and, two thirds of broker.session.timeout.ms after the "
    "loss, the last offset of a partition (lag, reading from the end)"
)
FIX = "start controllers that are down, or mend the network: more than half of them must reach each other"
UNCHANGED = "nothing was changed"
UNCERTAIN = "whether the change was made is not known"


class NoMajority(Failed):
    """No majority of controllers is confirmed."""

    def __init__(self, probe: "QuorumProbe", outcome: str | None = None) -> None:
        first = headline(probe) + (f"; {outcome}" if outcome else "")
        super().__init__("\n".join((first, *details(probe))))


def is_confirmed(probe: "QuorumProbe") -> bool:
    """Whether a majority is confirmed, or the cluster does not describe its quorum."""
    from penstock.client.admin.majority import Majority

    return probe.majority in (Majority.CONFIRMED, Majority.UNREPORTED)


def headline(probe: "QuorumProbe") -> str:
    """`no majority: 1 of 3 controllers answers`, or the good news."""
    from penstock.client.admin.majority import Majority

    match probe.majority:
        case Majority.LOST:
            return f"no majority: {probe.count_text}"
        case Majority.LEADERLESS:
            return f"no leader: {probe.count_text}, and no leader that a majority of them follows"
        case Majority.UNREPORTED:
            return "this cluster does not report its controllers"
    leader = -1 if probe.quorum is None else probe.quorum.leader_id
    return f"{probe.count_text}, and controller {leader} leads"


def details(probe: "QuorumProbe") -> list[str]:
    """The silent controllers, what works and what does not, and what to do."""
    silent = silent_text(probe)
    return [
        *([f"  silent          {silent}"] if silent else []),
        f"  still works     {WORKS}",
        f"  does not work   {STOPS}",
        f"  to do           {FIX}",
    ]


def silent_text(probe: "QuorumProbe") -> str:
    """The controllers that do not answer, with the reasons."""
    return "; ".join(_silent(each, each.failure) for each in probe.controllers if each.failure is not None)


def _silent(controller: "Controller", failure: str) -> str:
    number = "" if controller.node_id < 0 else f" {controller.node_id}"
    reason = failure.removeprefix(f"no connection to {controller.address}: ").partition(": is the ")[0]
    return f"controller{number} at {controller.address} ({reason})"


def with_majority(
    timeout_s: float, work: "Callable[[Client], Awaitable[T]]", *, is_long: bool = False
) -> "Callable[[Client], Awaitable[T]]":
    """The same work, for `run_with_client`: begun only if a majority is confirmed.

    It ends at the time limit, unless it `is_long`: a command that watches something. Raises NoMajority if there is none
    before the work, or after it has failed.
    """

    async def run(client: "Client") -> T:
        import asyncio

        from penstock.client.admin.quorum_probe import probe_quorum
        from penstock.client.errors import ClientError, TimedOut

        timeout_ms = int(timeout_s * 1000)
        probe = await probe_quorum(client.cluster, timeout_ms)
        if not is_confirmed(probe):
            raise NoMajority(probe, UNCHANGED)
        try:
            async with asyncio.timeout(None if is_long else max(0.1, timeout_s - probe.waited_ms / 1000)):
                return await work(client)
        except (ClientError, TimeoutError) as error:
            if isinstance(error, ClientError) and not error.is_retriable:
                raise
            again = await probe_quorum(client.cluster, AGAIN_MS)
            # A leader that answers may need longer than AGAIN_MS to be confirmed: then the error itself tells more.
            if not is_confirmed(again) and again.quorum is None:
                raise NoMajority(again, UNCERTAIN) from error
            if isinstance(error, ClientError):
                raise
            raise TimedOut(f"the cluster did not finish within {timeout_s:g} s; {UNCERTAIN}") from error

    return run
