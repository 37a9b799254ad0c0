"""The Network port over named virtual hosts, and its faults.

Connections behave as in TCP: see `connection` and `link`. Data in flight belongs to the network and not to a node, so
it still travels when its sender is paused, killed or has stopped waiting. Two nodes use independent connections with
independent delays: order holds inside one connection and nowhere else.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any

from penstock.simulator.callback import Callback
from penstock.simulator.connection import Pipe, SimulatedConnection
from penstock.simulator.link import Link, LinkSettings
from penstock.simulator.loop import VirtualLoop
from penstock.simulator.randomness import Streams
from penstock.simulator.trace import Trace

EPHEMERAL_PORT_FIRST = 40_000
BACKLOG_MAX = 128
HERE = ("", "0.0.0.0", "127.0.0.1", "::", "localhost")  # noqa: S104 - names of a virtual host


class Host:
    """A machine on the network."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.has_power = True
        self.is_blackhole = False
        """Drops connection attempts, as a firewall does."""
        self.listeners: dict[int, SimulatedListener] = {}
        self.ends: dict[int, SimulatedConnection] = {}
        self._next_port = EPHEMERAL_PORT_FIRST

    def free_port(self) -> int:
        """An ephemeral port that was not used before."""
        self._next_port += 1
        return self._next_port


class SimulatedListener:
    """A listening socket; connections queue in the kernel until they are accepted."""

    def __init__(self, host: Host, port: int) -> None:
        self._host = host
        self._port = port
        self._queue: deque[SimulatedConnection] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self._host.name}:{self._port}"

    @property
    def is_full(self) -> bool:
        """Whether the queue is full."""
        return len(self._queue) >= BACKLOG_MAX

    async def accept(self) -> SimulatedConnection:
        """Waits for the next connection."""
        while not self._queue:
            if self._is_closed:
                raise OSError(errno.EBADF, f"{self.address} is closed")
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        return self._queue.popleft()

    def push(self, connection: SimulatedConnection) -> None:
        """Queues a connection that arrived."""
        self._queue.append(connection)
        self._wake()

    def close(self) -> None:
        """Stops accepting connections; queued ones are closed."""
        if self._is_closed:
            return
        self._is_closed = True
        self._host.listeners.pop(self._port, None)
        while self._queue:
            self._queue.popleft().close()
        while self._waiters:
            self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return


class Partition:
    """A set of one-way cuts that end together."""

    def __init__(self, network: "SimulatedNetwork", links: list[Link]) -> None:
        self._network = network
        self._links = links

    def heal(self) -> None:
        """Ends the cuts; further calls do nothing."""
        self._network.partitions.pop(self, None)
        links, self._links = self._links, []
        for link in links:
            link.cuts -= 1
            self._network.note_link("heal", link)
            self._network.kick(link)


class SimulatedNetwork:
    """All hosts, the links between them, and the faults."""

    def __init__(self, loop: VirtualLoop, streams: Streams, trace: Trace) -> None:
        self.loop = loop
        self.settings = LinkSettings()
        """Settings of all links that have none of their own."""
        self.window_bytes = 256 * 1024
        """Unread bytes that one direction of a connection holds before `send` waits."""
        self.give_up_s = 20.0
        """A connection breaks when nothing was acknowledged for that long."""
        self.connect_timeout_s = 10.0
        self.partitions: dict[Partition, None] = {}
        """Partitions that have not healed."""
        self._streams = streams
        self._trace = trace
        self._hosts: dict[str, Host] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._connections = 0
        self._context = Context()

    # --- hosts and links

    def host(self, name: str) -> Host:
        """The host with that name; created if it is new."""
        if name not in self._hosts:
            self._hosts[name] = Host(name)
        return self._hosts[name]

    def hosts(self) -> list[str]:
        """All host names, in order of creation."""
        return list(self._hosts)

    def link(self, source: str, target: str) -> Link:
        """The link from one host to another."""
        link = self._links.get((source, target))
        if link is None:
            link = Link(source, target, self.settings, self._streams.stream("link", source, target))
            self._links[source, target] = link
        return link

    def passes(self, link: Link) -> bool:
        """Whether data can arrive over the link now."""
        return link.cuts == 0 and self.loop.time() >= link.clogged_until_s and self._hosts[link.target].has_power

    # --- operations of nodes

    def listen(self, host: Host, port: int) -> SimulatedListener:
        """Opens a listening socket."""
        port = port or host.free_port()
        if port in host.listeners:
            raise OSError(errno.EADDRINUSE, f"{host.name}:{port} is taken")
        listener = host.listeners[port] = SimulatedListener(host, port)
        return listener

    async def connect(self, source: Host, name: str, port: int) -> SimulatedConnection:
        """Opens a connection; retries after 1, 2, 4 … seconds if there is no answer."""
        target = source if name in HERE else self._hosts.get(name)
        if target is None:
            raise OSError(errno.EHOSTUNREACH, f"no host {name}")
        there, back = self.link(source.name, target.name), self.link(target.name, source.name)
        local = f"{source.name}:{source.free_port()}"
        deadline_s = self.loop.time() + self.connect_timeout_s
        retry_s = 1.0
        while True:
            await asyncio.sleep(there.delay_s())
            listener = target.listeners.get(port)
            is_swallowed = target.is_blackhole or (listener is not None and listener.is_full)
            if self.passes(there) and self.passes(back) and not is_swallowed:
                break
            wait_s = min(retry_s, deadline_s - self.loop.time())
            if wait_s <= 0.0:
                raise TimeoutError(errno.ETIMEDOUT, f"{name}:{port} does not answer")
            await asyncio.sleep(wait_s)
            retry_s *= 2
        if listener is None:
            await asyncio.sleep(back.delay_s())
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {name}:{port}")
        ours, theirs = self._join(source, local, target, port)
        listener.push(theirs)
        try:
            await asyncio.sleep(back.delay_s())
        except BaseException:
            ours.close()
            raise
        return ours

    def _join(
        self, source: Host, local: str, target: Host, port: int
    ) -> tuple[SimulatedConnection, SimulatedConnection]:
        self._connections += 1
        number = 2 * self._connections
        remote = f"{target.name}:{port}"
        ours = SimulatedConnection(self, number, source, local, remote)
        theirs = SimulatedConnection(self, number + 1, target, remote, local)
        ours.outgoing = theirs.incoming = Pipe(self, ours, theirs)
        theirs.outgoing = ours.incoming = Pipe(self, theirs, ours)
        self._trace.note("connect", source.name, local, remote)
        return ours, theirs

    # --- faults

    def cut(self, pairs: Iterable[tuple[str, str]]) -> Partition:
        """Cuts these directions until the partition heals; data in flight waits for that."""
        links = [self.link(source, target) for source, target in pairs]
        for link in links:
            link.cuts += 1
            self.note_link("cut", link)
        partition = Partition(self, links)
        self.partitions[partition] = None
        return partition

    def clog(self, source: str, target: str, seconds: float) -> None:
        """Holds up all data in this direction for a while, then delivers it."""
        link = self.link(source, target)
        link.clogged_until_s = max(link.clogged_until_s, self.loop.time() + seconds)
        self.note_link("clog", link)
        self.at(link.clogged_until_s, self.kick, link)

    def reset(self, one: str, other: str, *, is_one_sided: bool = False) -> int:
        """Breaks all connections between two hosts, at both ends or only at `one`. Returns their number."""
        ends = [end for end in self._hosts[one].ends.values() if end.outgoing.target.host.name == other]
        for end in ends:
            end.break_off("reset by the network")
            if not is_one_sided:
                end.outgoing.lose()
                end.incoming.lose()
                end.outgoing.target.break_off("reset by the network")
        return len(ends)

    def heal_all(self) -> None:
        """Ends all cuts, clogs and blackholes."""
        for host in self._hosts.values():
            host.is_blackhole = False
        for partition in list(self.partitions):
            partition.heal()
        for link in self._links.values():
            if link.clogged_until_s:
                link.clogged_until_s = 0.0
                self.kick(link)

    def end_process(self, name: str) -> None:
        """Closes the sockets of a dead process, as the kernel does; sent data still arrives."""
        host = self._hosts[name]
        for listener in list(host.listeners.values()):
            listener.close()
        for end in list(host.ends.values()):
            end.close()

    def cut_power(self, name: str) -> None:
        """Cuts the power of a machine; its peers are not notified."""
        host = self._hosts[name]
        host.has_power = False
        for end in list(host.ends.values()):
            end.vanish()
        for listener in list(host.listeners.values()):
            listener.close()

    def restore_power(self, name: str) -> None:
        """Restores the power of a machine, without its old connections."""
        host = self._hosts[name]
        if not host.has_power:
            host.has_power = True
            for link in [link for link in self._links.values() if link.target == name]:
                self.kick(link)

    # --- for pipes

    def at(self, time_s: float, callback: Callable[..., object], *args: Any) -> Callback:
        """Schedules a callback of the network itself, which belongs to no lane."""
        return self.loop.call_at(time_s, callback, *args, context=self._context)

    def kick(self, link: Link) -> None:
        """Sends waiting data and acknowledgements again, each after a delay, if the link passes."""
        if not self.passes(link):
            return
        stalled, link.stalled = link.stalled, {}
        for pipe in stalled:
            self.at(self.loop.time() + link.delay_s(), pipe.release)
        waiting, link.acks_waiting = link.acks_waiting, {}
        for pipe in waiting:
            self.at(self.loop.time() + link.delay_s(), pipe.acknowledge)

    def answer_reset(self, pipe: Pipe) -> None:
        """Answers data for an end that is gone with a reset, if the link back passes."""
        self.at(self.loop.time() + pipe.way_back.delay_s(), self._deliver_reset, pipe)

    def _deliver_reset(self, pipe: Pipe) -> None:
        if self.passes(pipe.way_back):
            pipe.source.break_off("reset by peer")

    def note(self, kind: str, end: SimulatedConnection, *details: object) -> None:
        """Adds a row about a connection to the trace."""
        self._trace.note(kind, end.host.name, end.number, *details)

    def note_link(self, kind: str, link: Link) -> None:
        """Adds a row about a link to the trace."""
        self._trace.note(kind, link.source, link.target)


class NodeNetwork:
    """The Network port of one life of a node."""

    def __init__(self, network: SimulatedNetwork, name: str) -> None:
        self._network = network
        self._host = network.host(name)
        self.is_revoked = False

    async def listen(self, host: str, port: int) -> SimulatedListener:
        """Starts to listen; port 0 selects a free port."""
        self._check()
        if host not in HERE and host != self._host.name:
            raise OSError(errno.EADDRNOTAVAIL, f"{self._host.name} is not {host}")
        return self._network.listen(self._host, port)

    async def connect(self, host: str, port: int) -> SimulatedConnection:
        """Opens a connection. Raises OSError if there is no answer."""
        self._check()
        return await self._network.connect(self._host, host, port)

    def _check(self) -> None:
        if self.is_revoked:
            raise OSError(errno.ENETDOWN, "this life is over")
