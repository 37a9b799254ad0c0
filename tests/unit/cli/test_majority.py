"""A command without a majority reports it first, sends nothing, and calls nothing ok that it cannot confirm."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from penstock.cli.cluster.checkups import health_findings
from penstock.cli.connection import majority
from penstock.cli.connection.majority import NoMajority, headline, with_majority
from penstock.client.admin import quorum_probe
from penstock.client.admin.majority import Controller, Majority, QuorumProbe
from penstock.client.client import Client
from penstock.client.errors import Refused, TimedOut, Unreachable
from penstock.model.errors import ErrorCode
from penstock.testing.plugin import Kafka
from tests.unit.cli.cluster_states import START, WELL, a_quorum, brokers, complaints, orders
from tests.unit.cli.conftest import Penstock

REFUSED = "no connection to c:2: nothing listens there: is the broker running, and is the port right?"
ONE = (Controller(1, "c:1", None), Controller(2, "c:2", REFUSED), Controller(3, "c:3", "it did not answer in time"))
LOST = QuorumProbe(Majority.LOST, ONE, None, True, 35)
CONFIRMED = QuorumProbe(
    Majority.CONFIRMED, (ONE[0], replace(ONE[1], failure=None), ONE[2]), a_quorum(0, 200, 900), True, 9
)


@pytest.mark.parametrize(
    ("probe", "first"),
    [
        (LOST, "no majority: 1 of 3 controllers answers"),
        (replace(LOST, controllers=()), "no majority: no controller is known"),
        (replace(CONFIRMED, majority=Majority.LEADERLESS), "no leader: 2 of 3 controllers answer, and no leader"),
        (CONFIRMED, "2 of 3 controllers answer, and controller 1 leads"),
        (replace(LOST, majority=Majority.UNREPORTED), "this cluster does not report its controllers"),
    ],
)
def test_the_first_line(probe: QuorumProbe, first: str) -> None:
    assert headline(probe).startswith(first)


def test_what_is_silent_and_what_works_follows() -> None:
    lines = str(NoMajority(LOST, "nothing was changed")).splitlines()
    assert lines[0] == "no majority: 1 of 3 controllers answers; nothing was changed"
    assert "controller 2 at c:2 (nothing listens there); controller 3 at c:3 (it did not answer in time)" in lines[1]
    assert [line.strip().split("  ")[0] for line in lines[2:]] == ["still works", "does not work", "to do"]


# --- work that needs a majority ---------------------------------------------------------------------------------------


class Work:
    def __init__(self, *outcomes: object) -> None:
        self.outcomes = list(outcomes)

    async def __call__(self, _client: object) -> str:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is None:
            await asyncio.Event().wait()
        return str(outcome)


def do(work: Work, monkeypatch: pytest.MonkeyPatch, *probes: QuorumProbe, timeout_s: float = 30.0) -> str:
    left = list(probes)

    async def probe_quorum(_cluster: object, _timeout_ms: int) -> QuorumProbe:
        return left.pop(0)

    monkeypatch.setattr(quorum_probe, "probe_quorum", probe_quorum)
    client: Any = type("Anyone", (), {"cluster": None})()
    return asyncio.run(_awaited(with_majority(timeout_s, work), cast("Client", client)))


async def _awaited(run: Any, client: Client) -> str:
    return str(await run(client))


def test_nothing_is_sent_without_a_majority(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work("done")
    with pytest.raises(NoMajority, match=majority.UNCHANGED):
        do(work, monkeypatch, LOST)
    assert work.outcomes == ["done"]
    assert do(work, monkeypatch, CONFIRMED) == "done"


def test_a_majority_that_is_lost_meanwhile_leaves_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    for outcome in (Refused(ErrorCode.NOT_CONTROLLER), Unreachable("it is gone"), None):
        with pytest.raises(NoMajority, match=majority.UNCERTAIN):
            do(Work(outcome), monkeypatch, CONFIRMED, LOST, timeout_s=0.2)


def test_other_failures_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused, match="TOPIC_ALREADY_EXISTS"):
        do(Work(Refused(ErrorCode.TOPIC_ALREADY_EXISTS)), monkeypatch, CONFIRMED)
    with pytest.raises(Unreachable):
        do(Work(Unreachable("it is gone")), monkeypatch, CONFIRMED, CONFIRMED)
    with pytest.raises(TimedOut, match="did not finish"):
        do(Work(None), monkeypatch, CONFIRMED, CONFIRMED, timeout_s=0.2)


# --- health -----------------------------------------------------------------------------------------------------------


def test_health_confirms_only_what_nodes_answer_themselves() -> None:
    state = replace(WELL, brokers=brokers(1, 2), topics=(orders(leader=1, isr=(1, 2)), orders(leader=2)), probe=LOST)
    state = replace(state, log_dirs={1: WELL.log_dirs[1], 2: Unreachable("it is gone")})
    assert [each.check for each in health_findings(state, START) if each.is_well] == ["disk"]
    found = complaints(state)
    assert found["controller"].found.startswith("no majority: 1 of 3 controllers answers; controller 2 at c:2")
    assert "1 of 2 brokers answers; silent: 2" in found["broker"].found
    assert "1 of 2 partitions can still be read, and 0 written with acks=all" in found["partitions"].found
    assert found.keys() == {"controller", "decisions", "broker", "partitions"}


def test_health_names_a_controller_that_does_not_answer_before_its_leader_misses_it() -> None:
    found = complaints(replace(WELL, probe=CONFIRMED))
    assert "controller 3 of 3 is not heard by controller 1" in found["controller"].found


# --- one node alone ---------------------------------------------------------------------------------------------------


def test_one_node_alone_is_its_own_majority(penstock: Penstock, kafka: Kafka) -> None:
    """It has no listener for other controllers, so that its address as a controller is not known."""
    result = penstock("quorum", "status", "-b", kafka.bootstrap)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("1 of 1 controllers answers. Leader 1 of epoch ")
    result = penstock("topic", "delete", "no-such-topic", "-b", kafka.bootstrap)
    assert result.code == 1
    assert "majority" not in result.err
    assert "no-such-topic" in result.err
