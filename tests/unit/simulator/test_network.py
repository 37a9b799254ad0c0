"""Simulated connections behave as TCP's do, with and without faults."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from penstock.host.lossy import LossyDisk
from penstock.host.memory import MemoryDisk
from penstock.model.ports import Connection, FileSlice, Listener
from penstock.simulator.network import NodeNetwork
from penstock.simulator.partitions import between, one_way
from penstock.simulator.world import World


class Pair:
    """Two hosts that can be connected."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.network = world.network
        self.a = NodeNetwork(world.network, "a")
        self.b = NodeNetwork(world.network, "b")
        self.listener: Listener | None = None

    async def join(self) -> tuple[Connection, Connection]:
        if self.listener is None:
            self.listener = await self.b.listen("b", 9092)
        connecting = asyncio.create_task(self.a.connect("b", 9092))
        accepted = await self.listener.accept()
        return await connecting, accepted

    def run(self, story: Callable[[], Awaitable[None]]) -> None:
        self.world.run_until(story(), limit_s=1_000)

    def now(self) -> float:
        return self.world.loop.time()


@pytest.fixture
def pair(world: World) -> Pair:
    return Pair(world)


async def read(connection: Connection, size: int = 1_000) -> bytes:
    buffer = bytearray(size)
    return bytes(buffer[: await connection.receive_into(memoryview(buffer))])


async def read_all(connection: Connection, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += await read(connection, size - len(data))
    return data


# --- without faults


def test_bytes_go_both_ways_and_the_ends_know_their_names(pair: Pair) -> None:
    async def story() -> None:
        ours, theirs = await pair.join()
        assert (ours.peer, theirs.local) == ("b:9092", "b:9092")
        assert ours.local == theirs.peer
        await ours.send([b"he", bytearray(b"l"), memoryview(b"lo")])
        assert await read(theirs) == b"hello"
        await theirs.send([b"you"])
        assert await read(ours, 2) == b"yo"
        assert await read(ours) == b"u"

    pair.run(story)


def test_port_zero_takes_a_free_one_and_a_taken_one_is_refused(pair: Pair) -> None:
    async def story() -> None:
        first, second = await pair.b.listen("0.0.0.0", 0), await pair.b.listen("", 0)
        assert first.address != second.address
        port = int(first.address.removeprefix("b:"))
        with pytest.raises(OSError, match="taken"):
            await pair.b.listen("b", port)
        with pytest.raises(OSError, match="is not a"):
            await pair.b.listen("a", 1)
        first.close()
        await pair.b.listen("b", port)

    pair.run(story)


def test_a_host_reaches_itself(pair: Pair) -> None:
    async def story() -> None:
        listener = await pair.a.listen("localhost", 80)
        ours = await pair.a.connect("127.0.0.1", 80)
        theirs = await listener.accept()
        await ours.send([b"me"])
        assert await read(theirs) == b"me"

    pair.run(story)


def test_the_end_comes_behind_the_bytes(pair: Pair) -> None:
    async def story() -> None:
        ours, theirs = await pair.join()
        await ours.send([b"last words"])
        ours.close()
        ours.close()
        assert await read(theirs) == b"last words"
        assert await read(theirs) == b""
        with pytest.raises(ConnectionAbortedError):
            await ours.send([b"x"])
        with pytest.raises(ConnectionAbortedError):
            await read(ours)

    pair.run(story)


def test_sending_to_an_end_that_closed_brings_a_reset(pair: Pair) -> None:
    async def story() -> None:
        ours, theirs = await pair.join()
        theirs.close()
        assert await read(ours) == b""
        await ours.send([b"anybody there?"])
        await asyncio.sleep(1)
        with pytest.raises(ConnectionResetError):
            await ours.send([b"hello?"])

    pair.run(story)


def test_closing_with_unread_bytes_resets_the_other_end(pair: Pair) -> None:
    async def story() -> None:
        ours, theirs = await pair.join()
        await ours.send([b"unread"])
        await asyncio.sleep(1)
        theirs.close()
        with pytest.raises(ConnectionResetError):
            await read(ours)

    pair.run(story)


def test_close_wakes_whoever_waits_here(pair: Pair) -> None:
    async def story() -> None:
        ours, _ = await pair.join()
        reading = asyncio.create_task(read(ours))
        await asyncio.sleep(1)
        with pytest.raises(RuntimeError, match="two readers"):
            await read(ours)
        ours.close()
        with pytest.raises(ConnectionAbortedError):
            await reading

    pair.run(story)


def test_a_closed_listener_accepts_no_more(pair: Pair) -> None:
    async def story() -> None:
        listener = await pair.b.listen("b", 9092)
        waiting = [asyncio.create_task(listener.accept()) for _ in range(2)]
        await asyncio.sleep(1)
        listener.close()
        for each in waiting:
            with pytest.raises(OSError, match="is closed"):
                await each
        with pytest.raises(ConnectionRefusedError):
            await pair.a.connect("b", 9092)

    pair.run(story)


def test_a_connection_that_nobody_accepted_ends_with_the_listener(pair: Pair) -> None:
    async def story() -> None:
        listener = await pair.b.listen("b", 9092)
        ours = await pair.a.connect("b", 9092)
        listener.close()
        assert await read(ours) == b""

    pair.run(story)


# --- order, delay, back-pressure


def test_order_holds_inside_a_connection_but_not_across(pair: Pair) -> None:
    pair.network.settings.delay_s_mean = 0.1

    async def story() -> None:
        joined = [await pair.join() for _ in range(20)]
        arrivals: list[int] = []

        async def collect(index: int, theirs: Connection) -> None:
            assert await read_all(theirs, 30) == bytes(range(30))
            arrivals.append(index)

        collecting = [asyncio.create_task(collect(index, theirs)) for index, (_, theirs) in enumerate(joined)]
        for ours, _ in joined:
            for value in range(30):
                await ours.send([bytes([value])])
        await asyncio.gather(*collecting)
        assert sorted(arrivals) == list(range(20))
        assert arrivals != list(range(20)), "twenty connections with equal delays"

    pair.run(story)


def test_delays_are_exponential_about_their_mean(pair: Pair) -> None:
    pair.network.settings.delay_s_mean = 0.5
    pair.network.settings.delay_s_min = 0.1
    delays = [pair.network.link("a", "b").delay_s() for _ in range(5_000)]
    assert min(delays) >= 0.1
    assert 0.55 < sum(delays) / len(delays) < 0.65
    assert max(delays) > 2.5


def test_loss_is_delay(pair: Pair) -> None:
    pair.network.settings.loss = 0.3
    delays = [pair.network.link("a", "b").delay_s() for _ in range(5_000)]
    assert 0.25 < sum(delay > 0.15 for delay in delays) / len(delays) < 0.35


def test_a_straggler_arrives_after_its_sender_gave_up(pair: Pair) -> None:
    """KIP-890: a request that is delivered after the client's time-out."""
    pair.network.link("a", "b").settings = pair.network.settings.copy()

    async def story() -> None:
        ours, theirs = await pair.join()
        pair.network.link("a", "b").settings.straggler = 1.0
        pair.network.link("a", "b").settings.straggler_s_max = 60.0
        await ours.send([b"commit"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read(ours), 0.01)
        ours.close()
        gave_up_s = pair.now()
        later, _ = await pair.join()
        await later.send([b"next"])
        assert await read(theirs) == b"commit"
        assert pair.now() > gave_up_s

    pair.run(story)


def test_pieces_may_arrive_in_parts(pair: Pair) -> None:
    pair.network.settings.fragment = 1.0

    async def story() -> None:
        ours, theirs = await pair.join()
        await ours.send([b"0123456789"])
        first = await read(theirs)
        assert 0 < len(first) < 10
        assert first + await read_all(theirs, 10 - len(first)) == b"0123456789"

    pair.run(story)


def test_send_waits_when_the_window_is_full(pair: Pair) -> None:
    pair.network.window_bytes = 1_000

    async def story() -> None:
        ours, theirs = await pair.join()
        data = bytes(range(250)) * 20
        sending = asyncio.create_task(ours.send([data]))
        await asyncio.sleep(10)
        assert not sending.done()
        with pytest.raises(RuntimeError, match="two writers"):
            await ours.send([b"x"])
        assert await read(theirs, 5_000) == data[:1_000], "never more in flight than the window"
        assert await read_all(theirs, 4_000) == data[1_000:]
        await sending

    pair.run(story)


def test_a_cancelled_send_has_sent_a_part_and_ends_the_connection(pair: Pair) -> None:
    pair.network.window_bytes = 1_000

    async def story() -> None:
        ours, theirs = await pair.join()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ours.send([bytes(2_500)]), 1)
        assert await read_all(theirs, 1_000) == bytes(1_000)
        assert await read(theirs) == b""

    pair.run(story)


def test_bandwidth_is_shared_by_the_connections_of_a_link(pair: Pair) -> None:
    pair.network.settings.bytes_per_s = 10_000

    async def story() -> None:
        joined = [await pair.join() for _ in range(2)]
        began_s = pair.now()
        for ours, _ in joined:
            await ours.send([bytes(20_000)])
        for _, theirs in joined:
            await read_all(theirs, 20_000)
        assert 3.9 < pair.now() - began_s < 4.5

    pair.run(story)


# --- files


def test_a_slice_of_a_file_is_sent_and_released(pair: Pair) -> None:
    async def story() -> None:
        disk = MemoryDisk()
        file = disk.open("f", create=True)
        file.write(0, bytes(range(256)) * 1_000)
        ours, theirs = await pair.join()
        part = FileSlice(file, 10, 100_000)
        file.close()
        disk.unlink("f")
        await ours.send([b"head", part, b"tail"])
        received = await read_all(theirs, 100_008)
        assert received == b"head" + (bytes(range(256)) * 1_000)[10:100_010] + b"tail"
        assert disk.open_count == 0

    pair.run(story)


def test_slices_are_released_when_the_connection_is_gone(pair: Pair) -> None:
    async def story() -> None:
        disk = MemoryDisk()
        file = disk.open("f", create=True)
        file.write(0, b"x" * 100)
        ours, _ = await pair.join()
        part = FileSlice(file, 0, 100)
        file.close()
        ours.close()
        with pytest.raises(ConnectionAbortedError):
            await ours.send([part])
        assert disk.open_count == 0

    pair.run(story)


def test_a_file_that_cannot_be_read_ends_the_connection(pair: Pair) -> None:
    async def story() -> None:
        disk = LossyDisk(MemoryDisk(), Random(1))
        file = disk.open("f", create=True)
        file.write(0, b"x" * 100)
        disk.fail_next("read")
        ours, theirs = await pair.join()
        part = FileSlice(file, 50, 50)
        file.close()
        with pytest.raises(ConnectionAbortedError, match="cannot read f"):
            await ours.send([part])
        assert disk.open_count == 0
        assert await read(theirs) == b""

    pair.run(story)


def test_a_file_shorter_than_promised_ends_the_connection(pair: Pair) -> None:
    async def story() -> None:
        file = MemoryDisk().open("f", create=True)
        file.write(0, b"x" * 100)
        ours, theirs = await pair.join()
        with pytest.raises(ConnectionAbortedError, match="shorter"):
            await ours.send([FileSlice(file, 50, 100)])
        assert await read(theirs) == b""

    pair.run(story)


# --- connecting


def test_nobody_listens(pair: Pair) -> None:
    async def story() -> None:
        with pytest.raises(ConnectionRefusedError):
            await pair.a.connect("b", 1)
        with pytest.raises(OSError, match="no host"):
            await pair.a.connect("nowhere", 1)

    pair.run(story)


def test_a_blackhole_answers_nothing(pair: Pair) -> None:
    async def story() -> None:
        await pair.b.listen("b", 9092)
        pair.network.host("b").is_blackhole = True
        began_s = pair.now()
        with pytest.raises(TimeoutError):
            await pair.a.connect("b", 9092)
        assert pair.network.connect_timeout_s <= pair.now() - began_s < pair.network.connect_timeout_s + 1

    pair.run(story)


def test_knocking_again_succeeds_when_the_way_is_open_in_time(pair: Pair) -> None:
    async def story() -> None:
        await pair.b.listen("b", 9092)
        cut = pair.network.cut(one_way("b", "a"))  # no reply would come back
        pair.world.loop.call_later(2, cut.heal)
        await pair.a.connect("b", 9092)
        assert 2 < pair.now() - 1_000 < 4

    pair.run(story)


def test_a_connect_that_is_cancelled_leaves_a_connection_that_ends(pair: Pair) -> None:
    pair.network.settings.delay_s_min = 1.0

    async def story() -> None:
        listener = await pair.b.listen("b", 9092)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pair.a.connect("b", 9092), 1.5)
        assert await read(await listener.accept()) == b""

    pair.run(story)


def test_the_queue_of_a_listener_is_bounded(pair: Pair) -> None:
    async def story() -> None:
        await pair.b.listen("b", 9092)
        for _ in range(128):
            await pair.a.connect("b", 9092)
        with pytest.raises(TimeoutError):
            await pair.a.connect("b", 9092)

    pair.run(story)


# --- cuts, clogs, resets


def test_a_one_way_cut_stops_one_direction_only(pair: Pair) -> None:
    async def story() -> None:
        ours, theirs = await pair.join()
        cut = pair.network.cut(one_way("a", "b"))
        await ours.send([b"to b"])
        await theirs.send([b"to a"])
        assert await read(ours) == b"to a"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read(theirs), 5)
        cut.heal()
        cut.heal()
        assert await read(theirs) == b"to b", "TCP sends again what was lost"

    pair.run(story)


def test_without_acknowledgements_the_window_does_not_move(pair: Pair) -> None:
    pair.network.window_bytes = 100
    pair.network.give_up_s = 1_000.0

    async def story() -> None:
        ours, theirs = await pair.join()
        cut = pair.network.cut(one_way("a", "b"))
        sending = asyncio.create_task(theirs.send([bytes(150)]))
        assert len(await read_all(ours, 100)) == 100
        await asyncio.sleep(10)
        assert not sending.done()
        cut.heal()
        assert len(await read_all(ours, 50)) == 50
        await sending

    pair.run(story)


def test_bytes_under_way_wait_for_the_link_in_order(pair: Pair) -> None:
    pair.network.settings.delay_s_min = 1.0

    async def story() -> None:
        ours, theirs = await pair.join()
        await ours.send([b"1"])
        cut = pair.network.cut(between(["a"], ["b"]))
        again = pair.network.cut(between(["a"], ["b"]))
        await asyncio.sleep(2)
        await ours.send([b"2"])
        cut.heal()
        await asyncio.sleep(2)
        await ours.send([b"3"])
        again.heal()
        assert await read_all(theirs, 3) == b"123"

    pair.run(story)


def test_a_long_cut_breaks_the_sender_and_leaves_the_other_end_half_open(pair: Pair) -> None:
    async def story() -> None:
        ours, theirs = await pair.join()
        cut = pair.network.cut(between(["a"], ["b"]))
        await ours.send([b"lost"])
        began_s = pair.now()
        with pytest.raises(ConnectionResetError, match="no acknowledgement"):
            await read(ours)
        assert pair.now() - began_s > pair.network.give_up_s
        cut.heal()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read(theirs), 60)
        await theirs.send([b"?"])
        with pytest.raises(ConnectionResetError):
            await read(theirs)

    pair.run(story)


def test_a_clog_holds_everything_for_a_while(pair: Pair) -> None:
    async def story() -> None:
        ours, theirs = await pair.join()
        began_s = pair.now()
        pair.network.clog("a", "b", 5.0)
        pair.network.clog("a", "b", 1.0)
        await ours.send([b"late"])
        await theirs.send([b"soon"])
        assert await read(ours) == b"soon"
        assert pair.now() - began_s < 1
        assert await read(theirs) == b"late"
        assert 5 <= pair.now() - began_s < 6

    pair.run(story)


def test_heal_all_ends_cuts_clogs_and_blackholes(pair: Pair) -> None:
    async def story() -> None:
        ours, theirs = await pair.join()
        cut = pair.network.cut(between(["a"], ["b"]))
        pair.network.clog("a", "b", 500.0)
        pair.network.host("b").is_blackhole = True
        await ours.send([b"x"])
        await asyncio.sleep(1)
        pair.network.heal_all()
        cut.heal()
        assert await read(theirs) == b"x"
        await pair.join()

    pair.run(story)


def test_a_reset_breaks_both_ends(pair: Pair) -> None:
    async def story() -> None:
        ours, theirs = await pair.join()
        await ours.send([b"under way"])
        assert pair.network.reset("a", "b") == 1
        with pytest.raises(ConnectionResetError):
            await read(ours)
        with pytest.raises(ConnectionResetError):
            await read(theirs)

    pair.run(story)


def test_a_one_sided_reset_is_seen_by_the_other_end_when_it_sends(pair: Pair) -> None:
    async def story() -> None:
        ours, theirs = await pair.join()
        pair.network.reset("a", "b", is_one_sided=True)
        with pytest.raises(ConnectionResetError):
            await ours.send([b"x"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read(theirs), 60)
        await theirs.send([b"x"])
        with pytest.raises(ConnectionResetError):
            await read(theirs)

    pair.run(story)


def test_what_arrived_before_a_reset_can_be_read(pair: Pair) -> None:
    async def story() -> None:
        ours, theirs = await pair.join()
        await ours.send([b"arrived"])
        await asyncio.sleep(1)
        pair.network.reset("a", "b")
        assert await read(theirs) == b"arrived"
        with pytest.raises(ConnectionResetError):
            await read(theirs)

    pair.run(story)


# --- crashes


def test_a_killed_process_ends_its_connections_behind_what_it_sent(pair: Pair) -> None:
    async def story() -> None:
        ours, theirs = await pair.join()
        await theirs.send([b"sent"])
        pair.network.end_process("b")
        assert await read(ours) == b"sent"
        assert await read(ours) == b""
        with pytest.raises(ConnectionRefusedError):
            await pair.a.connect("b", 9092)

    pair.run(story)


def test_a_killed_process_that_had_not_read_resets(pair: Pair) -> None:
    async def story() -> None:
        ours, _ = await pair.join()
        await ours.send([b"unread"])
        await asyncio.sleep(1)
        pair.network.end_process("b")
        with pytest.raises(ConnectionResetError):
            await read(ours)

    pair.run(story)


def test_a_machine_without_power_is_silent(pair: Pair) -> None:
    async def story() -> None:
        ours, _ = await pair.join()
        pair.network.cut_power("b")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read(ours), 100)
        with pytest.raises(TimeoutError):
            await pair.a.connect("b", 9092)
        await ours.send([b"anybody?"])
        with pytest.raises(ConnectionResetError, match="no acknowledgement"):
            await read(ours)

    pair.run(story)


def test_a_machine_that_came_back_resets_its_old_connections(pair: Pair) -> None:
    async def story() -> None:
        ours, _ = await pair.join()
        pair.network.cut_power("b")
        await ours.send([b"anybody?"])
        await asyncio.sleep(3)
        pair.network.restore_power("b")
        with pytest.raises(ConnectionResetError, match="by peer"):
            await read(ours)

    pair.run(story)


@pytest.mark.parametrize("wait_s", [0.0, 1.0], ids=["under way", "held up"])
def test_what_a_dead_machine_would_have_sent_again_never_arrives(pair: Pair, wait_s: float) -> None:
    async def story() -> None:
        ours, theirs = await pair.join()
        cut = pair.network.cut(one_way("b", "a"))
        await theirs.send([b"1"])
        await asyncio.sleep(wait_s)
        pair.network.cut_power("b")
        await asyncio.sleep(1)
        cut.heal()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read(ours), 15)

    pair.run(story)
