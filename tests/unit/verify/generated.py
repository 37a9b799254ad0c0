"""Clean histories drawn from a seed: a small, correct log with producers, transactions, readers, groups and crashes.

Every process is a generator that yields wherever another may run in between; the scheduler draws the next process. The
log acts at one moment between an invoke and its completion: every history is one that a correct log can produce.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

from penstock.verify.history import Event
from penstock.verify.recorder import Recorder
from penstock.verify.rules import Pipeline, Rules

Steps: TypeAlias = Generator[None, None, None]
Row: TypeAlias = tuple[str, int, str]
MARKER = ""


@dataclass(eq=False)
class Txn:
    """A transaction in the log; `is_committed` is decided before the markers are written."""

    is_committed: bool = False


@dataclass
class Log:
    """One partition as read_committed readers see it."""

    entries: list[tuple[str, Txn | None]] = field(default_factory=list)
    open: dict[Txn, int] = field(default_factory=dict)

    def append(self, value: str, txn: Txn | None = None) -> int:
        if txn is not None:
            self.open.setdefault(txn, len(self.entries))
        self.entries.append((value, txn))
        return len(self.entries) - 1

    def end(self, txn: Txn) -> None:
        del self.open[txn]
        self.entries.append((MARKER, None))

    @property
    def stable_end(self) -> int:
        return min(self.open.values(), default=len(self.entries))

    def read(self, position: int, records_max: int) -> tuple[list[tuple[int, str]], int]:
        """Returns the visible records from a position on, and the next position."""
        found: list[tuple[int, str]] = []
        while position < self.stable_end and len(found) < records_max:
            value, txn = self.entries[position]
            if value != MARKER and (txn is None or txn.is_committed):
                found.append((position, value))
            position += 1
        return found, position


class World:
    """A log, its clients, and the recorder of their operations."""

    def __init__(self, seed: int, partitions: int = 3) -> None:
        self.random = Random(seed)
        self.events: list[Event] = []
        self.time_ns = 0
        self.recorder = Recorder.in_memory(self._tick, self.events.append)
        self.logs = {f"orders-{number}": Log() for number in range(partitions)}
        self.running: list[Steps] = []
        self.values = 0
        self.producer_ids = 0

    def _tick(self) -> int:
        self.time_ns += self.random.randrange(1, 1000)
        return self.time_ns

    def run(self) -> None:
        """Runs all processes in random turns until they are done."""
        while self.running:
            process = self.random.choice(self.running)
            if next(process, self) is self:
                self.running.remove(process)

    def new_value(self, process: str) -> str:
        self.values += 1
        return f"{process}-{self.values}"

    def some(self, share: float) -> bool:
        return self.random.random() < share

    def subset(self, names: list[str]) -> list[str]:
        return self.random.sample(names, self.random.randint(1, len(names)))

    # Producers.

    def producer(self, name: str, sends: int) -> Steps:
        """Keeps up to three sends in flight; appended in order, acknowledged in any order."""
        window: list[tuple[Any, list[list[Any]]]] = []
        pid = self._producer_id()
        epoch = 0
        while sends or window:
            yield
            unfinished = next((pair for pair in window if pair[1][-1][1] is None), None)
            draw = self.random.random()
            if draw < 0.03:
                for operation, rows in window:
                    if self.some(0.7):
                        operation.info("died", rows if self.some(0.5) else None)
                self.running.append(self._land_late([row for _, rows in window for row in rows if row[1] is None]))
                self.recorder.invoke(name, "crash").info("died")
                window, pid, epoch = [], self._producer_id(), 0
            elif draw < 0.06 and unfinished is not None:
                operation, rows = unfinished
                later = window[window.index(unfinished) + 1 :]
                if all(row[1] is None for row in rows):
                    operation.fail("refused")
                else:
                    # The rest is never appended: the next epoch fences it.
                    operation.info("timed out", rows if self.some(0.5) else None)
                for other, _ in later:
                    other.fail("purged")
                window = window[: window.index(unfinished)]
                epoch += 1
            elif draw < 0.4 and sends and len(window) < 3:
                sends -= 1
                names = self.random.choices(list(self.logs), k=self.random.randint(1, 4))
                rows = [[partition, None, self.new_value(name)] for partition in names]
                asked = [list(row) for row in rows]
                window.append((self.recorder.invoke(name, "send", asked, pid=pid, epoch=epoch), rows))
            elif draw < 0.8 and unfinished is not None:
                row = next(row for row in unfinished[1] if row[1] is None)
                row[1] = self.logs[row[0]].append(row[2])
            else:
                done = [pair for pair in window if pair[1][-1][1] is not None]
                if done:
                    pair = self.random.choice(done)
                    pair[0].ok(pair[1])
                    window.remove(pair)

    def _producer_id(self) -> int:
        self.producer_ids += 1
        return 1000 + self.producer_ids

    def _land_late(self, rows: list[list[Any]]) -> Steps:
        for partition, _, value in rows:
            for _ in range(self.random.randrange(30)):
                yield
            if self.some(0.5):
                self.logs[partition].append(value)

    # Transactions.

    def transactor(self, name: str, transactions: int) -> Steps:
        """Sends and polls in transactions; goes back to its old position when a transaction fails."""
        positions = dict.fromkeys(self.logs, 0)
        self._assign(name, [[partition, 0] for partition in self.logs])
        for _ in range(transactions):
            yield
            plan: list[list[Any]] = []
            for _ in range(self.random.randint(1, 4)):
                if self.some(0.6):
                    plan.append(["send", self.random.choice(list(self.logs)), None, self.new_value(name)])
                else:
                    plan.append(["poll", []])
            operation = self.recorder.invoke(name, "txn", [list(step) for step in plan])
            txn = Txn()
            before = dict(positions)
            for step in plan:
                yield
                if step[0] == "send":
                    step[2] = self.logs[step[1]].append(step[3], txn)
                else:
                    for partition in self.subset(list(self.logs)):
                        step[1] += self._read(partition, positions)
            yield
            txn.is_committed = self.some(0.7)
            is_early = self.some(0.5)
            if not is_early:
                yield from self._write_markers(txn)
            told = plan if self.some(0.7) else None
            if self.some(0.15):
                operation.info("timed out", told)
            elif txn.is_committed:
                operation.ok(plan)
                before = dict(positions)
            else:
                operation.fail("aborted", told)
            positions = before
            yield from self._write_markers(txn)

    def _write_markers(self, txn: Txn) -> Steps:
        for log in self.random.sample(list(self.logs.values()), len(self.logs)):
            if txn in log.open:
                yield
                log.end(txn)

    def _read(self, partition: str, positions: dict[str, int]) -> list[Row]:
        found, positions[partition] = self.logs[partition].read(positions[partition], self.random.randint(0, 4))
        return [(partition, offset, value) for offset, value in found]

    # Independent readers.

    def _assign(self, name: str, entries: list[Any]) -> None:
        self.recorder.invoke(name, "assign", entries).ok(entries)

    def reader(self, name: str, polls: int, finals: dict[str, dict[str, int]]) -> Steps:
        """Reads its assignment, which changes now and then."""
        positions = dict.fromkeys(self.logs, 0)
        self._assign(name, list(self.logs))
        for _ in range(polls):
            yield
            draw = self.random.random()
            if draw < 0.05:
                self.recorder.invoke(name, "crash").ok()
                positions = {partition: self.random.choice([0, at]) for partition, at in positions.items()}
            elif draw < 0.15:
                entries: list[Any] = []
                kept: dict[str, int] = {}
                for partition in self.subset(list(self.logs)):
                    how = self.random.randrange(3)
                    at = self.random.randint(0, self.logs[partition].stable_end)
                    kept[partition] = positions.get(partition, at) if how == 0 else at
                    entries.append(partition if how == 0 else [partition, at if how == 1 else None])
                self._assign(name, entries)
                positions = kept
            elif draw < 0.2:
                self.recorder.invoke(name, "poll").fail("broken connection")
            elif draw < 0.25:
                # It is unknown whether the client's position advanced.
                operation = self.recorder.invoke(name, "poll")
                if self.some(0.5):
                    self._read(self.random.choice(list(positions)), positions)
                operation.info("timed out")
            else:
                yield from self._poll(name, positions)
        finals[name] = positions

    def _poll(self, name: str, positions: dict[str, int]) -> Steps:
        operation = self.recorder.invoke(name, "poll")
        yield
        rows = [row for partition in self.subset(list(positions)) for row in self._read(partition, positions)]
        yield
        operation.ok(rows)

    # Groups.

    def group(self, name: str, members: int, rounds: int) -> Steps:
        """A coordinator that moves partitions; its members are processes of their own."""
        group = Group(name)
        for number in range(members):
            group.gained[f"{name}-{number}"] = set()
            self.running.append(self._member(f"{name}-{number}", group))
        for _ in range(rounds):
            for _ in range(self.random.randint(5, 40)):
                yield
            group.generation += 1
            for partition in self.logs:
                owner = self.random.choice(list(group.gained))
                if group.owners.get(partition) != owner:
                    group.owners[partition] = owner
                    for touched in group.gained.values():
                        touched.add(partition)
        group.is_done = True

    def _member(self, name: str, group: "Group") -> Steps:
        positions: dict[str, int] = {}
        self.recorder.invoke(name, "subscribe", ["orders"]).ok(["orders"])
        while not group.is_done:
            yield
            draw = self.random.random()
            if draw < 0.2 and positions:
                yield from self._commit(name, group, positions)
            elif draw < 0.3:
                entries = [(group.name, partition) for partition in self.subset(list(self.logs))]
                operation = self.recorder.invoke(name, "fetch_committed", entries)
                yield
                answers = [(group.name, partition, group.committed.get(partition)) for _, partition in entries]
                yield
                operation.ok(answers)
            else:
                operation = self.recorder.invoke(name, "poll")
                touched, group.gained[name] = group.gained[name], set()
                for partition in touched:
                    positions.pop(partition, None)
                    if group.owners[partition] == name:
                        positions[partition] = group.committed.get(partition, 0)
                yield
                rows = [row for partition in list(positions) for row in self._read(partition, positions)]
                operation.ok(rows, rebalanced=sorted(touched) or None)

    def _commit(self, name: str, group: "Group", positions: dict[str, int]) -> Steps:
        generation = group.generation
        entries = [(group.name, partition, at, generation) for partition, at in positions.items()]
        operation = self.recorder.invoke(name, "commit", entries)
        yield
        if generation != group.generation:
            operation.fail("ILLEGAL_GENERATION")
        elif self.some(0.8):
            group.commit(entries)
            yield
            operation.ok()
        else:
            operation.info("timed out")
            self.running.append(self._commit_late(group, entries))

    def _commit_late(self, group: "Group", entries: list[tuple[str, str, int, int]]) -> Steps:
        for _ in range(self.random.randrange(20)):
            yield
        if self.some(0.5) and group.generation == entries[0][3]:
            group.commit(entries)

    # Observers, and the end.

    def onlooker(self, name: str, questions: int) -> Steps:
        for _ in range(questions):
            yield
            if self.some(0.5):
                asked = [(partition, which) for partition in self.logs for which in ("earliest", "latest")]
                operation = self.recorder.invoke(name, "list_offsets", asked)
                yield
                found = [(p, which, len(self.logs[p].entries) if which == "latest" else 0) for p, which in asked]
                yield
                operation.ok(found)
            else:
                operation = self.recorder.invoke(name, "high_watermark", [[partition] for partition in self.logs])
                yield
                ends = [(partition, len(log.entries), log.stable_end) for partition, log in self.logs.items()]
                yield
                operation.ok(ends)

    def read_to_the_end(self, name: str, positions: dict[str, int]) -> Steps:
        """Reads everything, as at the end of every run."""
        entries: list[Any] = list(self.logs) if positions else [[partition, 0] for partition in self.logs]
        self._assign(name, entries)
        for partition in self.logs:
            positions.setdefault(partition, 0)
        while any(positions[partition] < len(log.entries) for partition, log in self.logs.items()):
            yield from self._poll(name, positions)


@dataclass
class Group:
    name: str
    generation: int = 0
    owners: dict[str, str] = field(default_factory=dict)
    gained: dict[str, set[str]] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    is_done: bool = False

    def commit(self, entries: list[tuple[str, str, int, int]]) -> None:
        for _, partition, at, _ in entries:
            self.committed[partition] = at


def clean_history(seed: int, size: int = 25) -> tuple[list[Event], Rules]:
    """Returns a history without anomalies, and its rules."""
    world = World(seed)
    finals: dict[str, dict[str, int]] = {}
    world.running += [world.producer(f"producer-{number}", size) for number in range(3)]
    world.running += [world.transactor(f"transactor-{number}", size) for number in range(3)]
    world.running += [world.reader(f"reader-{number}", 2 * size, finals) for number in range(3)]
    world.running += [world.group("audit", members=3, rounds=size // 5), world.onlooker("onlooker", size)]
    world.run()
    settled_after_ns = world.time_ns
    world.running += [world.read_to_the_end(name, positions) for name, positions in sorted(finals.items())]
    world.running += [world.read_to_the_end("latecomer", {}), world.onlooker("onlooker", 3)]
    world.run()
    return world.events, Rules(settled_after_ns=settled_after_ns)


def clean_pipeline(seed: int, inputs: int = 60) -> tuple[list[Event], Rules]:
    """Consume, transform, produce: inputs in two partitions, outputs in two others, workers that fail now and then."""
    world = World(seed, partitions=4)
    names = list(world.logs)
    for number in range(inputs):
        partition = names[number % 2]
        offset = world.logs[partition].append(f"in-{number}")
        asked = [[partition, None, f"in-{number}"]]
        world.recorder.invoke("source", "send", asked).ok([[partition, offset, f"in-{number}"]])
    world.running += [_worker(world, f"worker-{number}", names[number], names[2:]) for number in range(2)]
    world.run()
    world.running += [world.read_to_the_end(f"reader-{number}", {}) for number in range(2)]
    world.run()
    return world.events, Rules(pipeline=Pipeline(frozenset(names[:2]), frozenset(names[2:])))


def _worker(world: World, name: str, source: str, targets: list[str]) -> Steps:
    committed = 0
    attempt = 0
    world._assign(name, [[source, 0]])
    while committed < len(world.logs[source].entries):
        attempt += 1
        found, end = world.logs[source].read(committed, world.random.randint(1, 5))
        sends: list[list[Any]] = [
            ["send", world.random.choice(targets), None, f"{value}/{attempt}"] for _, value in found
        ]
        operation = world.recorder.invoke(name, "txn", [["poll", []], *(list(step) for step in sends)])
        steps: list[Any] = [["poll", [(source, offset, value) for offset, value in found]], *sends]
        txn = Txn()
        for step in sends:
            yield
            step[2] = world.logs[step[1]].append(step[3], txn)
        txn.is_committed = world.some(0.7)
        yield from world._write_markers(txn)
        if txn.is_committed:
            committed = end
        if world.some(0.1):
            operation.info("timed out", steps if world.some(0.5) else None)
        elif txn.is_committed:
            operation.ok(steps)
        else:
            operation.fail("aborted", steps)
