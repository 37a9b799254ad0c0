"""The index: the data that the checks need, built in one pass over a history, which may be a stream.

Events come in order of time; none is kept once it is indexed. The loop over polled records is the only hot loop of
the room: it does one dict lookup and two comparisons per record, and rare cases are moved out of it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from penstock.verify.history import BadEvent, Event, Function, Partition, Process, Value
from penstock.verify.operations import Operation, Producer, Transaction
from penstock.verify.partitions import INSIDE, SUBSCRIBED, PartitionIndex
from penstock.verify.rules import Rules

_MISSING = object()


class Watcher(Protocol):
    """A check that runs while the history is read, because it needs few operations and no records."""

    def invoked(self, operation: Operation, event: Event) -> None:
        """Called when an operation begins."""

    def completed(self, operation: Operation, event: Event, asked: list[Any]) -> None:
        """Called when an operation ends; `asked` is the value of its invoke."""


class _Session:
    """A process between two crashes: its producer, and its read positions."""

    __slots__ = ("is_subscribed", "positions", "producer")

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.positions: dict[Partition, int] = {}
        self.is_subscribed = False


class Index:
    """The contents of a history by partition, process and transaction."""

    def __init__(self, watchers: Mapping[Function, Watcher]) -> None:
        self.partitions: dict[Partition, PartitionIndex] = {}
        self.transactions: dict[int, Transaction] = {}
        self.functions: Counter[Function] = Counter()
        self.records_sent = 0
        self.records_polled = 0
        self.outcomes: dict[str, int] = {"ok": 0, "fail": 0, "info": 0}
        self._watchers = watchers
        self._sessions: dict[Process, _Session] = {}
        self._open: dict[int, tuple[Operation, list[Any]]] = {}
        self._last_index = -1
        self._orders = 0

    @property
    def operations(self) -> int:
        """The number of operations."""
        return self.functions.total()

    @property
    def processes(self) -> int:
        """The number of processes."""
        return len(self._sessions)

    def reached(self, process: Process, partition: Partition) -> int | None:
        """The last offset that a process has read, -1 before the first; None if the process is not in the history."""
        session = self._sessions.get(process)
        return None if session is None else session.positions.get(partition, -1)

    def read(self, history: Iterable[Event]) -> None:
        """Indexes a whole history."""
        for event in history:
            index = event.index
            if index <= self._last_index:
                raise BadEvent(index, f"comes after event {self._last_index}")
            self._last_index = index
            try:
                if event.type == "invoke":
                    self._invoke(event)
                else:
                    self._complete(event)
            except (TypeError, ValueError, LookupError) as trouble:
                raise BadEvent(index, f"the value of {event.function} has a wrong shape: {trouble}") from None
        self._settle()

    # Invocations.

    def _invoke(self, event: Event) -> None:
        function, value = event.function, event.value or []
        session = self._session(event)
        operation = Operation(event.index, function, session.producer)
        self.functions[function] += 1
        self._open[event.index] = operation, value
        if function == "send":
            self.records_sent += len(value)
            for partition, _, sent in value:
                self._claim(partition, sent, operation)
        elif function == "txn":
            sends = [(step[1], step[3]) for step in value if step[0] == "send"]
            self.records_sent += len(sends)
            for partition, sent in sends:
                self._claim(partition, sent, operation)
            self.transactions[event.index] = Transaction(operation, sends)
        elif function == "crash":
            self._renew(event)
        elif function in self._watchers:
            self._watchers[function].invoked(operation, event)

    def _session(self, event: Event) -> _Session:
        session = self._sessions.get(event.process)
        if session is None:
            session = self._renew(event)
        producer = session.producer
        if event.producer_id is not None and (
            event.producer_id != producer.producer_id or event.producer_epoch != producer.producer_epoch
        ):
            # A new epoch of the same id fences the old one, so that order still holds; a new id fences no producer.
            order = producer.order
            if producer.producer_id not in (None, event.producer_id):
                order = self._next_order()
            client = event.client or producer.client
            session.producer = Producer(event.process, order, event.producer_id, event.producer_epoch, client)
        return session

    def _renew(self, event: Event) -> _Session:
        """Starts a new session for a process, at its first event or after a crash."""
        producer = Producer(event.process, self._next_order(), client=event.client)
        session = self._sessions[event.process] = _Session(producer)
        return session

    def _next_order(self) -> int:
        self._orders += 1
        return self._orders

    def _claim(self, partition: Partition, value: Value, operation: Operation) -> None:
        """Registers the operation that writes a value."""
        index = self._partition(partition)
        earlier = index.writers.get(value)
        if earlier is not None:
            if index.failed.pop(value, None) is None:
                raise BadEvent(
                    operation.invoked,
                    f"{value!r} was sent to {partition} before, by {earlier}; values must be unique in a partition",
                )
            del index.writers[value]  # The value moves to the end of the order of invocations.
        index.writers[value] = operation

    def _partition(self, partition: Partition) -> PartitionIndex:
        index = self.partitions.get(partition)
        if index is None:
            if type(partition) not in (str, int):
                raise TypeError(f"{partition!r} is no partition")
            index = self.partitions[partition] = PartitionIndex(partition)
        return index

    # Completions.

    def _complete(self, event: Event) -> None:
        operation, asked = self._close(event)
        function = event.function
        operation.outcome, operation.completed = event.type, event.index
        self.outcomes[event.type] += 1
        if function == "send":
            self._end_send(operation, asked, event)
        elif function == "poll":
            session = self._session(event)
            self._poll(operation, event.value or [], session, event, set())
            if event.type == "info":
                session.positions.clear()
            self._forget_rebalanced(event)
        elif function == "txn":
            self._end_transaction(operation, event)
        elif function == "assign":
            self._assign(event)
        elif function == "subscribe":
            if event.type != "fail":
                session = self._session(event)
                session.is_subscribed = True
                session.positions.clear()
        elif function in self._watchers:
            self._watchers[function].completed(operation, event, asked)

    def _close(self, event: Event) -> tuple[Operation, list[Any]]:
        place = event.operation
        if place is None:
            place = self._oldest(event)
        found = None if place is None else self._open.pop(place, None)
        if found is None or found[0].process != event.process or found[0].function != event.function:
            raise BadEvent(event.index, f"completes no open {event.function} of {event.process}")
        return found

    def _oldest(self, event: Event) -> int | None:
        for place, (operation, _) in self._open.items():
            if operation.process == event.process and operation.function == event.function:
                return place
        return None

    def _end_send(self, operation: Operation, asked: list[Any], event: Event) -> None:
        if event.type == "fail":
            for partition, _, value in asked:
                self.partitions[partition].failed[value] = operation
            return
        for partition, offset, value in event.value or ():
            if offset is not None:
                index = self.partitions[partition]
                if index.writers[value] is not operation:
                    raise ValueError(f"{value!r} was sent by {index.writers[value]}")
                index.add_ack(_checked(offset), value)

    def _end_transaction(self, operation: Operation, event: Event) -> None:
        transaction = self.transactions[operation.invoked]
        steps = event.value or []
        session = self._session(event)
        touched: set[Partition] = set()
        for step in steps:
            if step[0] == "poll":
                self._poll(operation, step[1], session, event, touched)
                self._note_sources(transaction, step[1])
        if event.type == "fail":
            for partition, value in transaction.sends:
                self.partitions[partition].failed[value] = operation
        else:
            self._note_deliveries(transaction, steps)
        if event.type == "ok":
            self._acknowledge(transaction)
        else:
            # A consumer returns to its committed offsets when its transaction did not commit.
            if event.value is None:
                session.positions.clear()
            for partition in sorted(touched):
                session.positions.pop(partition, None)
        self._forget_rebalanced(event)

    @staticmethod
    def _note_deliveries(transaction: Transaction, steps: list[Any]) -> None:
        delivered = {
            (step[1], step[3]): _checked(step[2]) for step in steps if step[0] == "send" and step[2] is not None
        }
        transaction.offsets = [delivered.pop(send, None) for send in transaction.sends]
        if delivered:
            raise ValueError(f"{next(iter(delivered))} was not among the sends of the invoke")

    def _acknowledge(self, transaction: Transaction) -> None:
        for partition, value, offset in transaction.places():
            if offset is not None:
                self.partitions[partition].add_ack(offset, value)

    def _note_sources(self, transaction: Transaction, rows: list[Any]) -> None:
        for partition, _, value in rows:
            writer = self.partitions[partition].writers.get(value)
            if writer is not None and writer.function == "txn":
                transaction.sources.add(writer.invoked)

    def _assign(self, event: Event) -> None:
        if event.type == "fail":
            return
        session = self._session(event)
        session.is_subscribed = False
        kept: dict[Partition, int] = {}
        for entry in event.value or ():
            if isinstance(entry, list | tuple):
                partition, offset = entry
                if offset is not None:
                    kept[partition] = _checked(offset) - 1
            elif entry in session.positions:
                kept[entry] = session.positions[entry]
        session.positions = kept if event.type == "ok" else {}

    def _poll(
        self, operation: Operation, rows: list[Any], session: _Session, event: Event, touched: set[Partition]
    ) -> None:
        """Indexes the records of a poll; `touched` are the partitions that the same operation has polled before."""
        self.records_polled += len(rows)
        current: Partition | None = None
        index = _NOWHERE
        reads: Mapping[int, Value] = index.reads
        position: int | None = None
        first = 0
        between = SUBSCRIBED if session.is_subscribed else 0
        inside = flags = between | INSIDE
        rebalanced = event.rebalanced or ()
        for partition, offset, value in rows:
            if partition != current:
                if current is not None and position is not None:
                    index.add_run(first, position, operation)
                    session.positions[current] = position
                current = partition
                index = self._partition(partition)
                reads = index.reads
                position = session.positions.get(partition)
                first = offset
                flags = inside if partition in touched else between
                touched.add(partition)
            if reads.get(offset, _MISSING) != value:
                self._read_first(index, offset, value, operation)
            if position is not None and offset != position + 1:
                if partition not in rebalanced:
                    index.add_jump(position, offset, flags, operation)
                if flags & INSIDE and offset <= position:
                    index.add_run(first, position, operation)
                    first = offset
            flags = inside
            position = offset
        if current is not None and position is not None:
            index.add_run(first, position, operation)
            session.positions[current] = position

    @staticmethod
    def _read_first(index: PartitionIndex, offset: int, value: Value, operation: Operation) -> None:
        """Records the first value read at an offset, or a value that differs from an earlier one."""
        if value not in index.writers:
            index.reads_without_writer.append((_checked(offset), value, operation))
        if index.reads.setdefault(_checked(offset), value) != value:
            index.read_clashes.append((offset, value, operation))

    def _forget_rebalanced(self, event: Event) -> None:
        for partition in event.rebalanced or ():
            self._sessions[event.process].positions.pop(partition, None)

    # The end.

    def _settle(self) -> None:
        for index in self.partitions.values():
            index.settle()
        # The offsets of a transaction with unknown outcome count only once one of its values was read.
        for transaction in self.transactions.values():
            if transaction.operation.outcome == "info" and self.is_visible(transaction):
                self._acknowledge(transaction)

    def is_visible(self, transaction: Transaction) -> bool:
        """Whether any value of the transaction was read."""
        return any(value in self.partitions[partition].read_offsets for partition, value in transaction.sends)

    def is_overdue(self, rules: Rules, partition: Partition, offset: int | None) -> bool:
        """Whether a committed record at this offset (None: unknown) must have been read by at least one reader."""
        log = self.partitions[partition]
        if not rules.must_survive(partition, offset or 0):
            return False
        if rules.ends_with_full_read:
            return offset is None or offset <= log.highest_read
        return offset is not None and log.was_passed(offset)


_NOWHERE = PartitionIndex("")


def _checked(offset: Any) -> int:
    if type(offset) is not int or not 0 <= offset < 1 << 62:
        raise ValueError(f"{offset!r} is no offset")
    return offset
