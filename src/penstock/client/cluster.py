"""Access to a cluster: finds brokers, leaders and coordinators, and retries requests until a deadline.

A request that is retried must be safe to repeat: when its connection broke, it may have been carried out. Metadata is
requested when it is missing, old, or contradicted by a response.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self, TypeVar

from penstock.client.bootstrap import Address, default_bootstrap, parse_addresses
from penstock.client.connection.connection import SOFTWARE, TIMEOUT_MS, BrokerConnection, Login
from penstock.client.connection.pool import Pool
from penstock.client.connection.trouble import cannot_connect
from penstock.client.errors import ClientError, Closed, Refused, Unreachable, check
from penstock.client.metadata import ClusterView, Topic, TopicPartition
from penstock.client.ports import ClientPorts, host_ports
from penstock.client.retry import Retry
from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

R = TypeVar("R", bound=Response)

CONNECT_TIMEOUT_MS = 5_000
CALL_TIMEOUT_MS = 60_000
METADATA_AGE_MS_MAX = 300_000
TOPIC_APPEARS_MS_MAX = 10_000
"""How long a topic that is being created may stay unknown."""
GROUP_COORDINATOR = 0
TRANSACTION_COORDINATOR = 1
_FIRST_WITH_MANY_KEYS = 4
_GRACE_MS = 100  # an attempt that ends at the limit can still give its reason
_FIRST_THAT_MAY_DECLINE = 4  # older Metadata requests cannot turn off topic creation


class Cluster:
    """See the module. Close it when done, or use it as a context manager; it closes the ports only if it made them."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        *,
        ports: ClientPorts | None = None,
        client_id: str | None = SOFTWARE,
        login: Login | None = None,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        request_timeout_ms: int = TIMEOUT_MS,
        timeout_ms: int = CALL_TIMEOUT_MS,
        first_contact_ms: int | None = None,
    ) -> None:
        """`first_contact_ms` limits the time to reach a first broker, all attempts together; by default a call does."""
        self.bootstrap = parse_addresses(default_bootstrap() if bootstrap is None else bootstrap)
        self.timeout_ms = timeout_ms
        """Time limit of a call, including all attempts."""
        self.request_timeout_ms = request_timeout_ms
        """Time limit of one response."""
        self.view = ClusterView()
        self._owns_ports = ports is None
        self.ports = host_ports() if ports is None else ports
        self._pool = Pool(
            self.ports,
            client_id=client_id,
            login=login,
            connect_timeout_ms=connect_timeout_ms,
            timeout_ms=request_timeout_ms,
        )
        self._first_contact_ms = first_contact_ms
        self._contact_began_ms: int | None = None
        self._is_contacted = first_contact_ms is None
        self._fresh_until_ms: dict[str, int] = {}
        self._lanes = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections."""
        await self._pool.close()
        if self._owns_ports:
            self.ports.close()

    def new_lane(self, name: str) -> str:
        """Returns an unused lane name."""
        self._lanes += 1
        return f"{name}-{self._lanes}"

    async def close_lane(self, lane: str) -> None:
        """Closes the connections of a lane."""
        await self._pool.close(lane)

    def retry(self, timeout_ms: int | None = None) -> Retry:
        """Returns the retry state of one call, with its deadline."""
        retry = Retry(self.ports.clock, self.ports.entropy, self.timeout_ms if timeout_ms is None else timeout_ms)
        if self._first_contact_ms is not None and not self._is_contacted:
            retry.limit_first(self._first_contact_ms, lambda: self._is_contacted)
        return retry

    # --- connections

    async def connection(self, node_id: int, lane: str = "") -> BrokerConnection:
        """A connection to the broker with this id."""
        broker = self.view.brokers.get(node_id)
        if broker is None:
            raise Unreachable(f"broker {node_id} is not in the cluster's metadata: it may be down")
        try:
            return await self._pool.connection(broker.address, lane)
        except Unreachable as error:
            raise self._with_hint(broker.address, error) from error

    async def connection_to(self, address: Address, lane: str = "") -> BrokerConnection:
        """A connection to an address, whether or not it belongs to a known broker."""
        return await self._pool.connection(address, lane)

    async def any_connection(self, lane: str = "") -> BrokerConnection:
        """A connection to any broker: an open one if possible, else a known one, else one of the bootstrap list."""
        if self._first_contact_ms is not None and not self._is_contacted:
            return await self._contact(self._first_contact_ms, lane)
        known = [broker.address for broker in self.view.brokers.values()]
        candidates = [
            *self._pool.opened(lane),
            *self._rotated(known),
            *self._rotated(self.bootstrap),
        ]
        failures: list[ClientError] = []
        for address in dict.fromkeys(candidates):
            try:
                return await self._pool.connection(address, lane)
            except Closed:
                raise
            except ClientError as error:
                failures.append(self._with_hint(address, error) if error.is_retriable else error)
        raise _unreachable(failures)

    async def _contact(self, limit_ms: int, lane: str) -> BrokerConnection:
        """The first connection of all: addresses that are slow to answer are tried at the same time."""
        clock = self.ports.clock
        now_ms = clock.monotonic_ms()
        if self._contact_began_ms is None or now_ms - self._contact_began_ms >= limit_ms:
            self._contact_began_ms = now_ms
        ends_ms = self._contact_began_ms + limit_ms
        rest = deque(self._rotated(self.bootstrap))
        pace_ms = limit_ms // (2 * len(rest))
        opening: dict[asyncio.Task[BrokerConnection], Address] = {}
        failures: list[ClientError] = []
        try:
            while rest or opening:
                if rest:
                    address = rest.popleft()
                    opening[asyncio.create_task(self._pool.connection(address, lane))] = address
                left_ms = max(0, ends_ms + _GRACE_MS - clock.monotonic_ms())
                wait_ms = min(left_ms, pace_ms) if rest else left_ms
                await asyncio.wait(  # determinism: the sets that it returns are not used
                    opening, timeout=wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED
                )
                found: list[BrokerConnection] = []
                for task in [each for each in opening if each.done()]:
                    del opening[task]
                    try:
                        found.append(task.result())
                    except ClientError as error:
                        failures.append(error)
                if found:
                    self._is_contacted = True
                    return found[0]
                if not left_ms:
                    break
        finally:
            for task in opening:
                task.cancel()
        failures += [cannot_connect(str(each), TimeoutError(), limit_ms) for each in opening.values()]
        raise _unreachable(failures)

    def _rotated(self, addresses: Sequence[Address]) -> list[Address]:
        start = self.ports.entropy.below(len(addresses)) if len(addresses) > 1 else 0
        return [*addresses[start:], *addresses[:start]]

    def _with_hint(self, address: Address, error: ClientError) -> Unreachable:
        """Adds a hint about advertised.listeners if the address comes from metadata only."""
        text = str(error)
        if self.view.brokers and address not in self.bootstrap:
            text += f" (the broker names {address} as its address: see its advertised.listeners)"
        return Unreachable(text)

    # --- metadata

    async def refresh(
        self, topics: Iterable[str] | None = (), *, creates_topics: bool = False, timeout_ms: int | None = None
    ) -> dict[str, ErrorCode]:
        """Requests metadata of the brokers and of these topics (None: all); returns error codes by topic."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        retry = self.retry(timeout_ms)
        while True:
            try:
                connection = await self.any_connection()
                version = connection.version_for(MetadataRequest)
                declines = version >= _FIRST_THAT_MAY_DECLINE
                if wanted is not None and not wanted and version == 0:
                    wanted = None  # the oldest version cannot request no topics
                request = MetadataRequest(
                    topics=wanted if wanted is not None or version else (),
                    allow_auto_topic_creation=creates_topics or not declines,
                )
                response = await connection.ask(request, MetadataResponse, version=version)
                if response.error_code is ErrorCode.REBOOTSTRAP_REQUIRED:  # KIP-1102
                    self.view.brokers.clear()
                    raise Unreachable(f"{connection.address} says that the known brokers are all out of date")
                check(response.error_code)
            except ClientError as error:
                await retry.after(error)
            else:
                refused = self.view.update(response)
                if topics is None:
                    self.view.keep_only(each.name for each in response.topics)
                until_ms = self.ports.clock.monotonic_ms() + METADATA_AGE_MS_MAX
                self._fresh_until_ms |= {each.name: until_ms for each in response.topics if each.name is not None}
                return refused

    async def topic(
        self, name: str, *, creates_topics: bool = False, is_coming: bool = False, timeout_ms: int | None = None
    ) -> Topic:
        """A topic and its partitions. Waits for an unknown topic if `creates_topics` or `is_coming`."""
        if known := self.cached_topic(name):
            return known
        retry = self.retry(timeout_ms)
        while True:
            refused = await self.refresh([name], creates_topics=creates_topics, timeout_ms=retry.left_ms)
            known = self.view.topics.get(name)
            if known is not None and known.partitions:
                return known
            error = Refused(refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None, f"topic {name}")
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not (creates_topics or is_coming):
                check(error.code, None, error.subject)
            await retry.after(error)
            # A broker that creates topics also reports them as unknown at first, but not for long.
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and retry.spent_ms > TOPIC_APPEARS_MS_MAX:
                raise Refused(error.code, "there is no such topic, and the broker creates none", error.subject)

    def cached_topic(self, name: str) -> Topic | None:
        """A topic, if its cached metadata is still fresh."""
        known = self.view.topics.get(name)
        if known is None or self._fresh_until_ms.get(name, 0) < self.ports.clock.monotonic_ms():
            return None
        return known

    def distrust(self, topic: str) -> None:
        """Marks a topic's metadata as stale, because a response has contradicted it."""
        self._fresh_until_ms.pop(topic, None)

    def forget(self, topic: str) -> None:
        """Drops a topic that was deleted or is to be recreated."""
        self.distrust(topic)
        self.view.topics.pop(topic, None)

    def leader(self, partition: TopicPartition) -> int | None:
        """The leader of a partition, if it is known and its metadata is fresh."""
        if self.cached_topic(partition.topic) is None:
            return None
        return self.view.leader(*partition)

    # --- requests

    async def ask_any(self, request: Request, answer: type[R], *, timeout_ms: int | None = None) -> R:
        """Sends a request to any broker, and to others if that fails."""
        return await self.ask_checked(request, answer, lambda _: (), timeout_ms=timeout_ms)

    async def ask_checked(
        self,
        request: Request,
        answer: type[R],
        codes: Callable[[R], Iterable[ErrorCode]],
        *,
        node_id: Callable[[], int | None] = lambda: None,
        timeout_ms: int | None = None,
    ) -> R:
        """Sends a request to a broker (any, if `node_id` returns None); retries while all error codes are retriable."""
        retry = self.retry(timeout_ms)
        while True:
            try:
                wanted = node_id()
                connection = await (self.any_connection() if wanted is None else self.connection(wanted))
                response = await connection.ask(request, answer)
                found = list(codes(response))
                if not found or not all(code.is_retriable for code in found):
                    return response
            except ClientError as error:
                await retry.after(error)
            else:
                try:
                    await retry.after(Refused(found[0]))
                except Refused:
                    return response  # the caller reads the codes, with the messages beside them
            await self.refresh(timeout_ms=retry.left_ms)

    async def ask_controller(
        self,
        request: Request,
        answer: type[R],
        codes: Callable[[R], Iterable[ErrorCode]],
        *,
        timeout_ms: int | None = None,
    ) -> R:
        """Sends a request to the controller, or to the broker that forwards requests to it."""
        if not self.view.brokers:
            await self.refresh(timeout_ms=timeout_ms)

        def controller() -> int | None:
            return self.view.controller_id if self.view.controller_id in self.view.brokers else None

        return await self.ask_checked(request, answer, codes, node_id=controller, timeout_ms=timeout_ms)

    async def coordinator(self, key: str, kind: int = GROUP_COORDINATOR, *, timeout_ms: int | None = None) -> int:
        """The coordinator of a group or a transactional id."""
        retry = self.retry(timeout_ms)
        while True:
            try:
                connection = await self.any_connection()
                version = connection.version_for(FindCoordinatorRequest)
                if version >= _FIRST_WITH_MANY_KEYS:
                    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
                    response = await connection.ask(request, FindCoordinatorResponse, version=version)
                    (found,) = response.coordinators
                    check(found.error_code, found.error_message, key)
                    node_id = found.node_id
                else:
                    response = await connection.ask(
                        FindCoordinatorRequest(key=key, key_type=kind), FindCoordinatorResponse, version=version
                    )
                    check(response.error_code, response.error_message, key)
                    node_id = response.node_id
                if node_id not in self.view.brokers:
                    await self.refresh(timeout_ms=retry.left_ms)
            except ClientError as error:
                await retry.after(error)
            else:
                return node_id

    async def ask_coordinator(
        self,
        key: str,
        request: Request,
        answer: type[R],
        codes: Callable[[R], Iterable[ErrorCode]],
        *,
        kind: int = GROUP_COORDINATOR,
        timeout_ms: int | None = None,
    ) -> R:
        """Sends a request to the coordinator of a group or a transactional id; looks it up for each attempt."""
        retry = self.retry(timeout_ms)
        while True:
            try:
                connection = await self.connection(await self.coordinator(key, kind, timeout_ms=retry.left_ms))
                response = await connection.ask(request, answer)
                found = list(codes(response))
                if not found or not all(code.is_retriable for code in found):
                    return response
                raise Refused(found[0], None, key)
            except ClientError as error:
                await retry.after(error)


def _unreachable(failures: Sequence[ClientError]) -> ClientError:
    """The error when no address could be reached; a failure that a retry does not mend goes first."""
    for failure in failures:
        if not failure.is_retriable:
            return failure
    return Unreachable("; ".join(map(str, failures)))
