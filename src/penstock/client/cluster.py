"""The cluster as one thing to talk to: finds brokers, leaders and coordinators, and tries again while it makes sense.

Every call ends by its deadline. What is asked again must bear it: a request whose connection broke may have been
carried out. Metadata is asked for when something is missing, old, or proven wrong by an answer.
"""

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self, TypeVar

from penstock.client.bootstrap import Address, default_bootstrap, parse_addresses
from penstock.client.connection import SOFTWARE, TIMEOUT_MS, BrokerConnection, Login
from penstock.client.errors import ClientError, Closed, Refused, Unreachable, check
from penstock.client.metadata import ClusterView, Topic, TopicPartition
from penstock.client.pool import Pool
from penstock.client.ports import ClientPorts, host_ports
from penstock.client.retry import Retry
from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

R = TypeVar("R", bound=Response)

METADATA_AGE_MS_MAX = 300_000
TOPIC_APPEARS_MS_MAX = 10_000
"""How long a topic that is being created may be unknown."""
GROUP_COORDINATOR = 0
TRANSACTION_COORDINATOR = 1
_FIRST_WITH_MANY_KEYS = 4
_FIRST_THAT_MAY_DECLINE = 4  # older Metadata requests cannot say that a topic is not to be created


class Cluster:
    """See the module. Close it when done, or use it as a context manager; it closes the ports only if it made them."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        *,
        ports: ClientPorts | None = None,
        client_id: str | None = SOFTWARE,
        login: Login | None = None,
        connect_timeout_ms: int = 10_000,
        request_timeout_ms: int = TIMEOUT_MS,
        timeout_ms: int = 60_000,
    ) -> None:
        self.bootstrap = parse_addresses(default_bootstrap() if bootstrap is None else bootstrap)
        self.timeout_ms = timeout_ms
        """How long a call may take, all attempts together."""
        self.request_timeout_ms = request_timeout_ms
        """How long one answer may take."""
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
        """The name of a lane that nobody else uses."""
        self._lanes += 1
        return f"{name}-{self._lanes}"

    async def close_lane(self, lane: str) -> None:
        """Closes the connections of a lane."""
        await self._pool.close(lane)

    def retry(self, timeout_ms: int | None = None) -> Retry:
        """Attempts within a deadline."""
        return Retry(self.ports.clock, self.ports.entropy, self.timeout_ms if timeout_ms is None else timeout_ms)

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

    async def connection_to(self, address: Address) -> BrokerConnection:
        """A connection to whoever is there, known as a broker or not."""
        return await self._pool.connection(address)

    async def any_connection(self, lane: str = "") -> BrokerConnection:
        """A connection to whichever broker is nearest at hand: an open one, a known one, one of the bootstrap list."""
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
        for failure in failures:
            if not failure.is_retriable:
                raise failure
        raise Unreachable("; ".join(map(str, failures)))

    def _rotated(self, addresses: Sequence[Address]) -> list[Address]:
        start = self.ports.entropy.below(len(addresses)) if len(addresses) > 1 else 0
        return [*addresses[start:], *addresses[:start]]

    def _with_hint(self, address: Address, error: ClientError) -> Unreachable:
        """Tells who was reached under one name and calls itself by another what that means."""
        text = str(error)
        if self.view.brokers and address not in self.bootstrap:
            text += f" (the broker names {address} as its address: see its advertised.listeners)"
        return Unreachable(text)

    # --- metadata

    async def refresh(
        self, topics: Iterable[str] | None = (), *, creates_topics: bool = False, timeout_ms: int | None = None
    ) -> dict[str, ErrorCode]:
        """Asks anew for brokers and for these topics (None: all); the topics that were refused, and why."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        retry = self.retry(timeout_ms)
        while True:
            try:
                connection = await self.any_connection()
                version = connection.version_for(MetadataRequest)
                declines = version >= _FIRST_THAT_MAY_DECLINE
                if wanted is not None and not wanted and version == 0:
                    wanted = None  # the oldest version has no way to ask for none
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
        """A topic whose partitions are known. What is not there yet is waited for if it may be created, or was."""
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
            # A broker that creates topics says at first that there is none, too; but not for long.
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and retry.spent_ms > TOPIC_APPEARS_MS_MAX:
                raise Refused(error.code, "there is no such topic, and the broker creates none", error.subject)

    def cached_topic(self, name: str) -> Topic | None:
        """A topic, if what is known of it can still be trusted."""
        known = self.view.topics.get(name)
        if known is None or self._fresh_until_ms.get(name, 0) < self.ports.clock.monotonic_ms():
            return None
        return known

    def distrust(self, topic: str) -> None:
        """An answer has proven wrong what is known of a topic."""
        self._fresh_until_ms.pop(topic, None)

    def forget(self, topic: str) -> None:
        """A topic is no more, or will be another."""
        self.distrust(topic)
        self.view.topics.pop(topic, None)

    def leader(self, partition: TopicPartition) -> int | None:
        """The leader of a partition, if it is known and to be trusted."""
        if self.cached_topic(partition.topic) is None:
            return None
        return self.view.leader(*partition)

    # --- asking

    async def ask_any(self, request: Request, answer: type[R], *, timeout_ms: int | None = None) -> R:
        """Asks any broker, and others if that fails."""
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
        """Asks one broker (any, when `node_id` gives none), again while all of the codes say that this may help."""
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
        """Asks the controller, or whoever passes it on, for what only the controller may do."""
        if not self.view.brokers:
            await self.refresh(timeout_ms=timeout_ms)

        def controller() -> int | None:
            return self.view.controller_id if self.view.controller_id in self.view.brokers else None

        return await self.ask_checked(request, answer, codes, node_id=controller, timeout_ms=timeout_ms)

    async def coordinator(self, key: str, kind: int = GROUP_COORDINATOR, *, timeout_ms: int | None = None) -> int:
        """The broker that looks after a group or a transactional id."""
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
        """Asks the coordinator of a group or a transactional id, and finds it anew when it has moved."""
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
