"""Probe of the metadata quorum: which controllers answer, and whether a majority of them has a leader.

Asks brokers where the controllers are, every controller for its view of the quorum, and the leader through brokers, all
at the same time. Ends as soon as the result is certain, and at the deadline at the latest, also if addresses swallow
packets, processes are stopped, or name servers do not answer.

A leader that was cut off takes itself for the leader for some seconds. So its answer counts only if a majority of the
voters has fetched from it within the last second, and either a majority of controllers has answered this client, or the
leader has answered GRACE_MS after the probe began: controllers may be out of this client's reach.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial

from penstock.client.admin.configs import ConfigKind, describe_configs_at
from penstock.client.admin.majority import UNKNOWN_ID, Controller, Majority, QuorumProbe
from penstock.client.admin.quorum import DESCRIBE_QUORUM, QuorumDescription, description_in
from penstock.client.bootstrap import Address, parse_addresses
from penstock.client.cluster import Cluster
from penstock.client.connection.connection import BrokerConnection
from penstock.client.errors import ClientError, Refused, TimedOut, Unreachable, Unsupported
from penstock.wire.messages.describe_quorum import DescribeQuorumResponse
from penstock.wire.messages.metadata import MetadataRequest, MetadataResponse

FRESH_MS = 1_000
"""A voter of an idle quorum fetches at least twice a second."""
GRACE_MS = 1_200
"""Longer than FRESH_MS, so that a fetch that counts has happened during the probe."""
SILENT_MS = 5_000
"""After this time, an address that has not answered is reported as silent, even if the deadline is later."""
PAUSE_S = 0.2
TICK_S = 0.1
BROKERS_MAX = 5
"""Brokers that are asked where the controllers are, beside those of the bootstrap list."""
FORWARDERS_MAX = 3
"""Brokers through which the leader is asked."""
LATE = "it did not answer in time"
NO_ADDRESS = "an unknown address"
VOTERS, SERVERS = "controller.quorum.voters", "controller.quorum.bootstrap.servers"


async def probe_quorum(
    cluster: Cluster, timeout_ms: int, controllers: Mapping[Address, int] | None = None
) -> QuorumProbe:
    """Probes the quorum. `controllers` are known addresses with their node ids.

    Raises the error of the bootstrap addresses if no broker answers and no controller is known.
    """
    return await _Probe(cluster, timeout_ms, controllers or {}).run()


class _Probe:
    def __init__(self, cluster: Cluster, timeout_ms: int, controllers: Mapping[Address, int]) -> None:
        self._cluster = cluster
        self._clock = cluster.ports.clock
        self._timeout_ms = timeout_ms
        self._lane = cluster.new_lane("quorum-probe")
        self._began_ms = self._clock.monotonic_ms()
        self._tasks: list[asyncio.Task[None]] = []
        self._finders = 0
        """Tasks that may still find controllers."""
        self._changed = asyncio.Event()
        self._given = dict(controllers)
        self._failures: dict[Address, str | None] = {}
        """The latest result of each controller that was asked; None: it answered."""
        self._ids: dict[Address, int] = {}
        self._voters: dict[int, Address] = {}
        """The voters, as the leader or any controller names them."""
        self._is_reached = False
        """Whether an address of the bootstrap list has answered."""
        self._brokers: dict[int, None] = {}
        """Brokers that were asked where the controllers are."""
        self._forwarders = 0
        self._errors: list[ClientError] = []
        self._quorum: QuorumDescription | None = None
        self._quorum_ms = 0
        """When the leader answered."""
        self._refused: ClientError | None = None

    async def run(self) -> QuorumProbe:
        for address, node_id in self._given.items():
            self._add_controller(address, node_id)
        for address in self._cluster.bootstrap:
            self._find(partial(self._ask_bootstrap, address))
        verdict: Majority | None = None
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                while (verdict := self._verdict()) is None:
                    self._changed.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(TICK_S):
                            await self._changed.wait()
        except TimeoutError:
            verdict = self._verdict_at_last()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._cluster.close_lane(self._lane)
        assert verdict is not None
        controllers = self._controllers(is_leader_believed=verdict is Majority.CONFIRMED)
        return QuorumProbe(verdict, controllers, self._quorum, self._is_reached, self._passed_ms)

    @property
    def _passed_ms(self) -> int:
        return self._clock.monotonic_ms() - self._began_ms

    # --- verdict

    def _verdict(self) -> Majority | None:
        """The verdict, if it is certain before the deadline."""
        controllers = self._controllers()
        has_majority = 2 * sum(each.failure is None for each in controllers) > len(controllers) > 0
        if self._is_followed and (has_majority or self._quorum_ms - self._began_ms >= GRACE_MS):
            return Majority.CONFIRMED
        if self._refused is not None and not any(each.failure is None for each in controllers):
            return Majority.UNREPORTED
        is_patient = self._passed_ms < SILENT_MS
        if is_patient and (self._finders or any(each not in self._failures for each in self._ids)):
            return None
        if not controllers:
            if not self._is_reached:
                raise self._unreached()
            return None
        if not has_majority and (self._quorum is None or self._passed_ms > 2 * GRACE_MS):
            return Majority.LOST
        return None

    def _verdict_at_last(self) -> Majority:
        controllers = self._controllers()
        if not controllers and not self._is_reached:
            raise self._unreached()
        if 2 * sum(each.failure is None for each in controllers) > len(controllers):
            return Majority.LEADERLESS
        return Majority.LOST

    @property
    def _is_followed(self) -> bool:
        """Whether the leader has answered within the last second, and had heard of a majority within the one before."""
        quorum = self._quorum
        if quorum is None or self._clock.monotonic_ms() - self._quorum_ms > FRESH_MS:
            return False
        return 2 * len(self._heard(quorum)) > len(quorum.voters)

    def _heard(self, quorum: QuorumDescription) -> list[int]:
        """The voters that the leader has just heard, by its own clock; all, if it does not report that (Kafka 3.3)."""
        last_ms = max((each.last_fetch_ms for each in quorum.voters), default=-1)
        return [each.node_id for each in quorum.voters if last_ms < 0 or each.last_fetch_ms >= last_ms - FRESH_MS]

    def _controllers(self, *, is_leader_believed: bool = False) -> tuple[Controller, ...]:
        """The voters, or what is known of them; with a believed leader, those that it has heard answer, too."""
        heard = [] if self._quorum is None else [self._quorum.leader_id]
        if self._quorum is not None and is_leader_believed:
            heard = self._heard(self._quorum)
        found = []
        known = self._voters or {node_id: each for each, node_id in self._ids.items() if node_id != UNKNOWN_ID}
        for node_id, address in sorted(known.items()):
            tried = [each for each, its_id in self._ids.items() if its_id == node_id] or [address]
            results = [self._failures.get(each, LATE) for each in tried]
            failure = None if node_id in heard or None in results else results[0]
            found.append(Controller(node_id, str(tried[0]), failure))
        if self._voters:
            return tuple(found)
        rest = [each for each, node_id in self._ids.items() if node_id == UNKNOWN_ID]
        found += [Controller(UNKNOWN_ID, str(each), self._failures.get(each, LATE)) for each in rest]
        if not found and self._quorum is not None:  # one node alone has no listener for other controllers
            voters = [each.node_id for each in self._quorum.voters]
            found = [Controller(each, NO_ADDRESS, None if each in heard else LATE) for each in voters]
        return tuple(found)

    def _unreached(self) -> ClientError:
        final = [each for each in self._errors if not each.is_retriable]
        if final:
            return final[0]
        if self._errors:
            return Unreachable("; ".join(dict.fromkeys(map(str, self._errors))))
        shown = ",".join(map(str, self._cluster.bootstrap))
        return TimedOut(f"{shown} did not answer within {self._passed_ms} ms")

    # --- tasks

    def _start(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    def _find(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        async def run() -> None:
            try:
                await work()
            except ClientError as error:
                self._errors.append(error)
            finally:
                self._finders -= 1
                self._changed.set()

        self._finders += 1
        self._start(run())

    async def _ask_bootstrap(self, address: Address) -> None:
        connection = await self._cluster.connection_to(address)
        self._cluster.view.update(await connection.ask(MetadataRequest(topics=()), MetadataResponse))
        self._is_reached = True
        if self._forwarders < FORWARDERS_MAX:
            self._forwarders += 1
            self._start(self._ask_leader_through(address))
        brokers = self._cluster.view.brokers
        nearest = [each for each, broker in brokers.items() if broker.address == address]
        for node_id in [*nearest, *sorted(brokers)][: BROKERS_MAX + len(nearest)]:
            if node_id not in self._brokers:
                self._brokers[node_id] = None
                self._find(partial(self._ask_broker, node_id))

    async def _ask_broker(self, node_id: int) -> None:
        connection = await self._cluster.connection(node_id)
        with suppress(Refused, Unsupported, ValueError):
            found = await describe_configs_at(connection, ConfigKind.BROKER, str(node_id), [VOTERS, SERVERS])
            values = {name: entry.value or "" for name, entry in found.items()}
            for text in filter(None, values.get(VOTERS, "").split(",")):
                voter, _, place = text.strip().partition("@")
                self._add_controller(parse_addresses(place)[0], int(voter))
            if servers := values.get(SERVERS, "").strip():
                for address in parse_addresses(servers):
                    self._add_controller(address, UNKNOWN_ID)

    def _add_controller(self, address: Address, node_id: int) -> None:
        is_new = address not in self._ids
        if is_new or node_id != UNKNOWN_ID:
            self._ids[address] = node_id
        if is_new:
            self._start(self._ask_controller(address))

    async def _ask_controller(self, address: Address) -> None:
        while True:
            try:
                self._note(await self._answer(await self._cluster.connection_to(address)))
                self._failures[address] = None
            except Unsupported:
                self._failures[address] = None
            except ClientError as error:
                self._failures[address] = str(error)
            self._changed.set()
            await asyncio.sleep(PAUSE_S)

    async def _ask_leader_through(self, broker: Address) -> None:
        """In a lane of its own: a broker may hold the request until there is a leader."""
        while True:
            try:
                self._note(await self._answer(await self._cluster.connection_to(broker, self._lane)))
            except ClientError as error:
                if not error.is_retriable:
                    self._refused = error
                    self._changed.set()
                    return
            self._changed.set()
            await asyncio.sleep(PAUSE_S)

    async def _answer(self, connection: BrokerConnection) -> DescribeQuorumResponse:
        return await connection.ask(DESCRIBE_QUORUM, DescribeQuorumResponse)

    def _note(self, response: DescribeQuorumResponse) -> None:
        """Notes voters, and the quorum if the leader has answered. Raises Refused if it was refused for good."""
        self._add_voters((each.node_id, [(e.host, e.port) for e in each.listeners]) for each in response.nodes)
        try:
            quorum = description_in(response)
        except Refused as refused:
            if refused.is_retriable:
                return
            raise
        self._quorum, self._quorum_ms = quorum, self._clock.monotonic_ms()
        if self._voters:  # the leader's list is complete and current
            current = {each.node_id for each in quorum.voters}
            self._voters = {node_id: each for node_id, each in self._voters.items() if node_id in current}

    def _add_voters(self, nodes: Iterable[tuple[int, list[tuple[str, int]]]]) -> None:
        for node_id, endpoints in nodes:
            if endpoints:
                self._voters[node_id] = Address(*endpoints[0])
                if node_id not in self._ids.values():
                    self._add_controller(Address(*endpoints[0]), node_id)
