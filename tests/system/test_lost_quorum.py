"""Six commands on clusters that lost controllers, brokers or the network: each tells the truth within its limit."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.client.admin.admin import NewTopic
from penstock.client.client import Client
from penstock.client.errors import ClientError
from tests.system.lost_quorum import (
    BROKERS_GONE,
    COMMANDS,
    CUT,
    ONE_GONE,
    STOPPED,
    THREE_GONE,
    TIMEOUT_S,
    TWO_GONE,
    Local,
    Outcome,
    outcomes_of_a_cut,
    run_one_by_one,
    run_together,
)

pytestmark = pytest.mark.xdist_group("cluster")

RUNS = (run_together, run_one_by_one, run_one_by_one)
TRIES = len(RUNS)
PATIENCE_S = 240.0
LATE_S = 1.0
"""What a command may take beyond its --timeout."""
LOST = {
    TWO_GONE: "no majority: 1 of 3 controllers answers",
    THREE_GONE: "no majority: 0 of 3 controllers answer",
    STOPPED: "no majority: 1 of 3 controllers answers",
    CUT: "no majority: 1 of 3 controllers answers",
}
CASES = [
    (fault, command) for fault in (ONE_GONE, TWO_GONE, THREE_GONE, BROKERS_GONE, STOPPED, CUT) for command in COMMANDS
]
UNCONFIRMED = ("controller", "offline", "replicas", "in-sync", "moves")
"""Checks whose results only the controllers confirm."""


class Stage:
    """Brings each fault about once, and keeps what the commands did."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._local: Local | None = None
        self._found: dict[str, dict[str, Outcome]] = {}

    @property
    def local(self) -> Local:
        if self._local is None:
            directory = self._directory / "local"
            directory.mkdir(exist_ok=True)
            self._local = self._stack.enter_context(Local(directory))
            asyncio.run(_create(self._local, "kept"))
        return self._local

    def outcome(self, fault: str, command: str) -> Outcome:
        if fault not in self._found:
            self._found[fault] = self._cut() if fault == CUT else self._hurt(fault)
        return self._found[fault][command]

    def _hurt(self, fault: str) -> dict[str, Outcome]:
        """Tries again where a busy machine has brought about another fault as well, or made commands late."""
        for run in RUNS:
            fenced = self.local.fenced()
            self.local.hurt(fault)
            elected = self.local.elected()
            found = self.local.outcomes(run)
            is_fenced = self.local.fenced() != fenced and fault != BROKERS_GONE
            if not (is_fenced or self.local.elected() != elected or are_late(found)):
                return found
            self.local.heal()
        return found

    def _cut(self) -> dict[str, Outcome]:
        for number, run in enumerate(RUNS):
            directory = self._directory / f"cut-{number}"
            directory.mkdir()
            found = outcomes_of_a_cut(directory, run)
            if not are_late(found):
                return found
        return found


def are_late(found: dict[str, Outcome]) -> bool:
    """Whether a command took longer than it may."""
    return any(each.seconds > TIMEOUT_S + LATE_S for each in found.values())


async def _create(local: Local, topic: str) -> None:
    async with Client(local.address(4, 5)) as client:
        await client.admin.create_topics([NewTopic(topic, assignments=[[4, 5]])])


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(tmp_path_factory.mktemp("lost-quorum"), stack)


@pytest.mark.parametrize(("fault", "command"), CASES)
def test_the_first_line_is_true_and_in_time(stage: Stage, fault: str, command: str) -> None:
    found = stage.outcome(fault, command)
    told = found.out + found.err
    assert found.seconds <= TIMEOUT_S + LATE_S, told
    if fault in LOST:
        assert LOST[fault] in found.first_line, told
        assert found.code != 0, told
        assert "still works" in told or command == "health", told
        assert "reads and writes" in told or "can still be read" in told, told
        assert "creating, changing or deleting topics" in told, told
        confirmed = [line.split()[1] for line in told.splitlines() if line.startswith("ok ")]
        assert not {*confirmed} & {*UNCONFIRMED}, told
    elif fault == BROKERS_GONE:
        _check_without_brokers(found, command)
    else:
        _check_with_a_majority(found, command)


def _check_without_brokers(found: Outcome, command: str) -> None:
    told = found.out + found.err
    assert found.code != 0, told
    if command == "status":  # it looks at every node, by the files of the cluster
        assert "3 of 3 controllers answer, and controller" in found.first_line
        assert [line.split()[1] for line in found.out.splitlines() if line.split()[:1] in (["4"], ["5"])] == ["no"] * 2
    elif command == "doctor":  # it begins with this machine
        assert found.first_line.startswith("ok     permission")
        assert "WRONG  broker" in told
        assert "nothing listens there" in told
    else:
        assert "nothing listens there" in found.first_line


def _check_with_a_majority(found: Outcome, command: str) -> None:
    told = found.out + found.err
    expected = {
        "health": (1, "controller 1 of 3 is not heard"),
        "quorum": (0, "2 of 3 controllers answer. Leader "),
        "status": (1, "2 of 3 controllers answer, and controller "),
        "create": (0, "created: "),
        "doctor": (1, "2 of 3 controllers answer, and controller "),
        "reassign": (0, "Nothing to do: everything is where the plan has it."),
    }
    code, text = expected[command]
    assert found.code == code, told
    assert text in found.first_line, told


def test_what_still_works_does(stage: Stage) -> None:
    """A partition whose replicas are alive is written with acks=all, and read, by clients that were there before."""

    async def write_and_read(topic: str) -> list[bytes | None]:
        async with Client(stage.local.address(4, 5)) as client:
            await client.publish(topic, key=None, value="before")
            stage.local.hurt(TWO_GONE)
            await client.publish(topic, key=None, value="after")
            values: list[bytes | None] = []
            async for message in client.consume(topic):
                values.append(message.value)
                if len(values) == 2:
                    break
            return values

    for number in range(TRIES):
        stage.local.heal()
        topic = f"works-{number}"
        asyncio.run(_create(stage.local, topic))
        fenced = stage.local.fenced()
        try:
            assert asyncio.run(asyncio.wait_for(write_and_read(topic), 240)) == [b"before", b"after"]
        except (TimeoutError, ClientError):
            if stage.local.fenced() == fenced or number == TRIES - 1:
                raise
        else:
            return


def test_the_log_of_the_survivor_says_so(stage: Stage) -> None:
    stage.local.hurt(TWO_GONE)
    deadline = time.monotonic() + PATIENCE_S
    while not (told := [line for line in with_no_leader(stage.local.log(3)) if "[quorum-no-majority]" in line]):
        assert time.monotonic() < deadline, stage.local.log(3)[-4000:]
        time.sleep(0.5)
    assert " WARNING quorum: Nobody can be elected to lead the metadata quorum: 1 of 3 voters answer" in told[0]


def with_no_leader(log: str) -> list[str]:
    """The lines after the last time that a node led the quorum."""
    lines = log.splitlines()
    led = [number for number, line in enumerate(lines) if "[quorum-leader]" in line or "[quorum-follows]" in line]
    return lines[led[-1] :]
