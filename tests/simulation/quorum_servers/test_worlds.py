"""Real drivers of the quorum, on real logs and Kafka's protocol, keep its guarantees on a simulated network."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.client.connection.connection import open_connection
from penstock.client.ports import ClientPorts
from penstock.model.errors import ErrorCode
from penstock.raft.roles import Role
from penstock.server.loop.driver import Driver
from penstock.server.quorum import quorum_runner
from penstock.server.quorum.quorum_log import QuorumLog
from penstock.server.quorum.quorum_state import load_state
from penstock.simulator.node import Ports
from penstock.simulator.options import FaultOptions
from penstock.simulator.world import World
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from penstock.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from tests.simulation.quorum_servers.world import PORT, Ledger, Program, run_seed

SEEDS = 40
CHUNK = 5


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_the_drivers_keep_the_promises(first: int, record_property: Callable[[str, object], None]) -> None:
    began_s = time.process_time()
    runs = []
    for seed in range(first, first + CHUNK):
        try:
            runs.append(run_seed(seed))
        except Exception as trouble:
            raise AssertionError(f"seed {seed} failed: {trouble}") from trouble
    assert sum(run.snapshots for run in runs) > CHUNK
    record_property("simulated_runs", len(runs))
    record_property("simulated_events", sum(run.events for run in runs))
    record_property("simulated_cpu_s", time.process_time() - began_s)


def test_a_seed_tells_the_same_story_twice() -> None:
    assert run_seed(3) == run_seed(3)


def lose_power_everywhere() -> None:
    """Cuts the power of all nodes at an acknowledgement; they must still hold everything, and their epochs."""
    ledger = Ledger()
    programs = {node_id: Program(node_id, ledger) for node_id in (1, 2, 3)}
    with World(1, FaultOptions(sync_s_mean=0.02)) as world:
        for node_id, program in programs.items():
            world.add(f"node-{node_id}", program.live)
            world.start(f"node-{node_id}")
        for goal in (10, 60):
            while len(ledger.acknowledged) < goal and not ledger.breaches:
                world.run(seconds=0.002)
            epochs = [program.runner.raft.epoch for program in programs.values() if program.runner is not None]
            for name in world.nodes:
                world.cut_power(name)
                assert load_state(world.nodes[name].disk).epoch == max(epochs), f"{name} has forgotten its epoch"
            for name in world.nodes:
                world.start(name)
            world.run(seconds=4.0)
            assert not ledger.breaches, ledger.breaches[0]
        assert ledger.acknowledged <= set(ledger.values)
        for program in programs.values():
            assert program.tally is not None
            assert len(program.tally.values) >= len(ledger.values) - 3


def test_nothing_is_lost_when_all_nodes_lose_power_at_once() -> None:
    lose_power_everywhere()


def test_a_state_that_is_not_stored_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forgets(*_arguments: object) -> None:
        return None

    monkeypatch.setattr(quorum_runner, "store_state", forgets)
    with pytest.raises(AssertionError, match="has forgotten its epoch"):
        lose_power_everywhere()


def test_a_log_that_is_not_synced_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QuorumLog, "synced_end", property(lambda self: self.end_offset))
    with pytest.raises(AssertionError, match="applies"):
        lose_power_everywhere()


def test_a_driver_that_does_not_wait_for_its_state_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    do = Driver._do

    def goes_on(self: Driver[Any, Any, Any, Any], effect: object) -> None:
        do(self, effect)
        self._is_blocked = False

    monkeypatch.setattr(Driver, "_do", goes_on)
    assert_noticed()


# --- operators --------------------------------------------------------------------------------------------------------


async def tell_a_story(ports: Ports, programs: dict[int, Program], said: list[object]) -> None:
    """Adds the fourth node as a voter, describes the quorum, removes the voter, and stops the leader."""
    client = ClientPorts(ports.network, ports.clock, ports.entropy)
    while (leader_id := leader_of(programs)) is None:
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.0)
    connection = await open_connection(client.network, f"node-{leader_id}", PORT, address="the leader")
    runner = programs[4].runner
    assert runner is not None
    key = runner.key
    joining = AddRaftVoterRequest(
        cluster_id="simulated",
        timeout_ms=1_000,
        voter_id=4,
        voter_directory_id=key.directory_id,
        listeners=[Listener(name="CONTROLLER", host="node-4", port=PORT)],
    )
    said.append((await connection.ask(joining, AddRaftVoterResponse)).error_code)
    said.append((await connection.ask(joining, AddRaftVoterResponse)).error_code)
    about = [TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    found = await connection.ask(DescribeQuorumRequest(topics=about), DescribeQuorumResponse)
    part = found.topics[0].partitions[0]
    said.append((part.error_code, part.leader_id == leader_id, [voter.replica_id for voter in part.current_voters]))
    said.append([node.node_id for node in found.nodes])
    leaving = RemoveRaftVoterRequest(cluster_id="simulated", voter_id=4, voter_directory_id=key.directory_id)
    said.append((await connection.ask(leaving, RemoveRaftVoterResponse)).error_code)
    foreign = RemoveRaftVoterRequest(cluster_id="another", voter_id=4, voter_directory_id=key.directory_id)
    said.append((await connection.ask(foreign, RemoveRaftVoterResponse)).error_code)
    began_s = asyncio.get_running_loop().time()
    programs[leader_id].is_stopping = True
    while leader_of(programs) in (None, leader_id):
        await asyncio.sleep(0.01)
    said.append(asyncio.get_running_loop().time() - began_s < 0.5)


def leader_of(programs: dict[int, Program]) -> int | None:
    for node_id, program in programs.items():
        runner = program.runner
        if runner is not None and runner.offline_reason is None and runner.raft.role is Role.LEADER:
            return node_id
    return None


def test_an_operator_adds_a_voter_looks_and_stops_the_leader() -> None:
    said: list[object] = []
    ledger = Ledger()
    programs = {node_id: Program(node_id, ledger) for node_id in (1, 2, 3, 4)}
    with World(1, FaultOptions()) as world:
        for node_id, program in programs.items():
            world.add(f"node-{node_id}", program.live)
            world.start(f"node-{node_id}")
        world.add("operator", lambda ports: tell_a_story(ports, programs, said))
        world.start("operator")
        world.run(seconds=20)
    assert said == [
        ErrorCode.NONE,
        ErrorCode.DUPLICATE_VOTER,
        (ErrorCode.NONE, True, [1, 2, 3, 4]),
        [1, 2, 3, 4],
        ErrorCode.NONE,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        True,
    ]


def assert_noticed(seeds_max: int = 40) -> None:
    for seed in range(seeds_max):
        try:
            run_seed(seed)
        except Exception:
            return
    raise AssertionError(f"went unnoticed in {seeds_max} worlds")
