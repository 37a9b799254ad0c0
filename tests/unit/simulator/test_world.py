"""Nodes start, crash, pause and restart, and leave the same state behind as a real machine."""

import asyncio
import gc
import warnings

import pytest

from penstock.simulator.errors import Unhandled
from penstock.simulator.nemesis import Nemesis
from penstock.simulator.node import Ports
from penstock.simulator.options import FaultOptions
from penstock.simulator.world import World


def test_a_node_has_ports_and_ends_when_its_program_does(world: World) -> None:
    async def main(ports: Ports) -> None:
        assert ports.name == "node-1"
        assert ports.clock.monotonic_ms() > 0
        assert len(ports.entropy.token(8)) == 8
        assert await ports.workers.run(lambda: 7) == 7
        ports.disk.make_dir("logs")
        assert ports.disk.list("") == ["logs"]
        await ports.network.listen("node-1", 9092)

    world.add("node-1", main)
    world.start("node-1")
    assert world.nodes["node-1"].is_up
    world.run(1)
    assert not world.nodes["node-1"].is_up
    assert not world.network.host("node-1").listeners


def test_nodes_talk_by_name(world: World) -> None:
    heard: list[bytes] = []

    async def server(ports: Ports) -> None:
        connection = await (await ports.network.listen("", 1)).accept()
        buffer = bytearray(10)
        heard.append(bytes(buffer[: await connection.receive_into(memoryview(buffer))]))

    async def client(ports: Ports) -> None:
        await (await ports.network.connect("server", 1)).send([b"hello"])

    world.add("server", server)
    world.add("client", client)
    world.start("server")
    world.start("client")
    world.run(1)
    assert heard == [b"hello"]


async def write_forever(ports: Ports) -> None:
    file = ports.disk.open("f", create=True)
    await ports.disk.sync_dir("")
    file.write(0, b"synced")
    await file.sync()
    file.write(6, b" unsynced")
    try:
        await asyncio.sleep(1e9)
    finally:
        ports.disk.open("clean shutdown", create=True)


def test_a_kill_runs_no_cleanup_and_loses_nothing_on_disk(world: World) -> None:
    world.add("n", write_forever)
    world.start("n")
    world.run(1)
    world.kill("n")
    world.run(1)
    disk = world.nodes["n"].disk
    assert disk.list("") == ["f"], "a killed process leaves no word of farewell"
    assert disk.open("f").read(0, 100) == b"synced unsynced"


def test_a_power_cut_loses_what_was_not_synced(world: World) -> None:
    world.add("n", write_forever)
    world.start("n")
    world.run(1)
    monotonic_ms = world.nodes["n"].clock.monotonic_ms()
    world.cut_power("n")
    world.run(1)
    node = world.nodes["n"]
    assert node.disk.list("") == ["f"]
    assert node.disk.open("f").read(0, 100) == b"synced"
    world.start("n")
    assert node.clock.monotonic_ms() < monotonic_ms
    world.run(1)
    assert node.lives == 2
    assert node.disk.open("f").read(0, 100) == b"synced unsynced"


def test_a_killed_life_sends_nothing_more(world: World) -> None:
    heard: list[int] = []

    async def talker(ports: Ports) -> None:
        connection = await ports.network.connect("listener", 1)

        async def talk() -> None:
            while True:
                await connection.send([b"x"])
                await asyncio.sleep(1)

        task = asyncio.create_task(talk())
        try:
            await task
        finally:
            await connection.send([b"farewell"])

    async def listener(ports: Ports) -> None:
        connection = await (await ports.network.listen("", 1)).accept()
        while True:
            heard.append(await connection.receive_into(memoryview(bytearray(10))))
            if not heard[-1]:
                return

    world.add("listener", listener)
    world.add("talker", talker)
    world.start("listener")
    world.start("talker")
    world.run(3.5)
    world.kill("talker")
    world.run(10)
    assert heard == [1, 1, 1, 1, 0]


def test_a_restart_is_a_new_life(world: World) -> None:
    lives: list[int] = []

    async def main(ports: Ports) -> None:
        await ports.network.listen("", 9092)
        lives.append(len(lives))
        await asyncio.sleep(1e9)

    world.add("n", main)
    world.start("n")
    world.run(1)
    world.restart("n")
    world.run(1)
    assert lives == [0, 1]


def test_a_node_can_kill_itself_between_two_lines(world: World) -> None:
    seen: list[str] = []

    async def main(ports: Ports) -> None:
        world.kill("n")
        seen.append("last breath")
        with pytest.raises(OSError, match="over"):
            ports.disk.open("f", create=True)
        with pytest.raises(OSError, match="over"):
            await ports.network.connect("n", 1)
        await asyncio.sleep(1)
        seen.append("never")

    world.add("n", main)
    world.start("n")
    world.run(5)
    assert seen == ["last breath"]


def test_a_paused_node_catches_up_in_a_burst(world: World) -> None:
    ticks: list[int] = []
    heard: list[tuple[float, int]] = []

    async def server(ports: Ports) -> None:
        connection = await (await ports.network.listen("", 1)).accept()

        async def tick() -> None:
            while True:
                await asyncio.sleep(1)
                ticks.append(ports.clock.monotonic_ms())

        ticking = asyncio.create_task(tick())
        while count := await connection.receive_into(memoryview(bytearray(10))):
            heard.append((world.loop.time(), count))
        ticking.cancel()

    async def client(ports: Ports) -> None:
        connection = await ports.network.connect("server", 1)
        for _ in range(5):
            await connection.send([b"x"])
            await asyncio.sleep(1)
        await asyncio.sleep(100)

    world.add("server", server)
    world.add("client", client)
    world.start("server")
    world.start("client")
    world.run(1.5)
    world.pause("server")
    world.run(8.5)
    assert len(ticks) == 1
    assert len(heard) == 2
    world.resume("server")
    world.run(0.1)
    assert len(ticks) == 2, "a sleeper wakes once, late"
    assert heard[2:] == [(1_010.0, 3)], "the kernel took the bytes while nobody read"


def test_a_paused_node_can_be_killed(world: World) -> None:
    world.add("n", write_forever)
    world.start("n")
    world.run(1)
    world.pause("n")
    world.kill("n")
    world.run(1)
    world.start("n")
    world.run(1)
    assert world.nodes["n"].is_up
    assert not world.nodes["n"].is_paused


def test_a_program_that_fails_fails_the_run(world: World) -> None:
    async def main(_: Ports) -> None:
        await asyncio.sleep(1)
        raise AssertionError("invariant")

    world.add("n", main)
    world.start("n")
    with pytest.raises(Unhandled, match="n failed in the world of seed 7") as caught:
        world.run(10)
    assert "invariant" in str(caught.value.__cause__)
    world.loop.failures.clear()


def test_a_program_may_end_by_what_it_tolerates(world: World) -> None:
    async def main(ports: Ports) -> None:
        await asyncio.sleep(1)
        ports.disk.open("missing")

    world.add("n", main, tolerates=(OSError,))
    world.start("n")
    world.run(10)
    assert not world.nodes["n"].is_up


def test_what_the_remains_of_a_killed_program_leave_unseen_fails_nothing(world: World) -> None:
    async def main(_: Ports) -> None:
        answers = [asyncio.get_running_loop().create_future() for _ in range(2)]
        answers[1].add_done_callback(lambda _: None)
        try:
            await asyncio.sleep(1e9)
        finally:
            while answers:
                answers.pop().set_exception(KeyError("nobody waits for this answer any more"))

    world.add("n", main)
    world.start("n")
    world.run(1)
    world.kill("n")
    world.run(1)


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_cleanup_that_starts_tasks_leaves_nothing_behind(is_killed: bool) -> None:
    said: list[str] = []

    async def say_goodbye() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            said.append("unwound")

    async def main(_: Ports) -> None:
        work = asyncio.create_task(asyncio.sleep(1e9))
        try:
            await asyncio.shield(work)
        finally:
            said.append("cleaning up")
            await asyncio.gather(work, say_goodbye(), return_exceptions=True)

    with World(1) as world:
        world.add("n", main)
        world.start("n")
        world.run(1)
        if is_killed:
            world.kill("n")
            world.run(1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        del world
        gc.collect()
    assert said == ["cleaning up"], "what never began has nothing to unwind"
    assert [str(each.message) for each in told] == []


def test_a_task_that_failed_unseen_fails_the_world() -> None:
    async def bad() -> None:
        raise KeyError("unseen")

    tasks = []

    async def main(_: Ports) -> None:
        tasks.append(asyncio.create_task(bad()))
        await asyncio.sleep(1e9)

    world = World(1)
    world.add("n", main)
    world.start("n")
    with world:
        world.run(1)
        with pytest.raises(Unhandled, match="nobody looked"):
            world.__exit__(None, None, None)


def test_disk_faults_can_be_ordered_per_node(world: World) -> None:
    async def main(ports: Ports) -> None:
        file = ports.disk.open("f", create=True)
        await asyncio.sleep(1)
        await file.sync()

    for name in ("good", "bad"):
        world.add(name, main, tolerates=(OSError,))
        world.start(name)
    world.nodes["bad"].disk.fail_next("sync")
    kept = world.trace
    kept.kept = []
    world.run(2)
    assert world.trace_hash
    exits = [row.split()[2:] for row in kept.kept if " exit " in row]
    assert sorted(exits) == [["exit", "bad", "OSError"], ["exit", "good"]]


def test_syncs_take_time() -> None:
    async def main(ports: Ports) -> None:
        file = ports.disk.open("f", create=True)
        file.write(0, b"x")
        await file.sync()
        world.note("synced", ports.name)

    with World(3, FaultOptions(sync_s_mean=1.0, slow_sync=1.0), keeps_trace=True) as world:
        world.add("n", main)
        world.start("n")
        world.run(60)
        assert world.trace_hash
        assert world.trace.kept is not None
        times = {row.split()[2]: int(row.split()[0]) for row in world.trace.kept}
    assert times["synced"] - times["sync"] > 10_000_000


def test_run_until_has_a_limit(world: World) -> None:
    assert world.run_until(asyncio.sleep(1, "done"), limit_s=2) == "done"
    with pytest.raises(TimeoutError):
        world.run_until(asyncio.sleep(10), limit_s=2)


def test_the_trace_tells_worlds_apart() -> None:
    def story(seed: int, word: str) -> str:
        with World(seed) as world:
            world.note("word", "n", word, b"bytes", 1)
            world.run(1)
            world.note("end", "n")
            return world.trace_hash

    assert story(1, "a") == story(1, "a")
    assert story(1, "a") != story(1, "b")


def test_torment_does_every_kind_of_fault_and_calm_ends_them_all() -> None:
    options = FaultOptions(
        partition_every_s=1,
        reset_every_s=1,
        clog_every_s=1,
        blackhole_every_s=1,
        kill_every_s=1,
        power_cut_every_s=1,
        pause_every_s=1,
        clock_every_s=1,
    )

    async def main(ports: Ports) -> None:
        await ports.network.listen("", 1)
        while True:
            await asyncio.sleep(1)
            ports.clock.wall_ms()

    with World(5, options, keeps_trace=True) as world:
        names = [f"n{index}" for index in range(5)]
        for name in names:
            world.add(name, main)
            world.start(name)
        nemesis = Nemesis(world, names)
        nemesis.torment()
        world.run(60)
        assert nemesis.faults > 200
        assert world.trace_hash
        assert world.trace.kept is not None
        kinds = {row.split()[2] for row in world.trace.kept}
        assert kinds >= {"cut", "heal", "clog", "kill", "power", "pause", "resume", "clock", "start"}
        nemesis.calm()
        world.run(1)
        assert all(world.nodes[name].is_up and not world.nodes[name].is_paused for name in names)
        assert not world.network.partitions
        walls = [world.nodes[name].clock.wall_ms() for name in names]
        assert max(walls) - min(walls) <= 2
        rows = world.trace.count
        world.run(60)
        assert world.trace.count == rows
