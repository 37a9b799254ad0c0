"""Plants one anomaly at a random place of a clean history. A mutation names the findings it requires and permits.

Indexes are spread out first, so that new events fit between old ones.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeAlias

from penstock.verify.findings import Kind
from penstock.verify.history import Event, EventType

SPREAD = 1000
Row: TypeAlias = tuple[str, int, str]


class Impossible(Exception):
    """The history has no place for the anomaly."""


class History:
    """A copy of a history that can be tampered with; events are replaced, never changed in place."""

    def __init__(self, events: list[Event], random: Random) -> None:
        self.random = random
        self.events = [
            replace(event, index=event.index * SPREAD, operation=_times(event.operation, SPREAD)) for event in events
        ]

    def pick(self, things: list[Any]) -> Any:
        if not things:
            raise Impossible
        return self.random.choice(things)

    def completions(self, function: str, *types: str) -> list[Event]:
        return [event for event in self.events if event.function == function and event.type in (types or ("ok",))]

    def invoke_of(self, completion: Event) -> Event:
        return next(event for event in self.events if event.index == completion.operation)

    def put(self, event: Event) -> None:
        """Replaces the event of that index."""
        place = next(place for place, old in enumerate(self.events) if old.index == event.index)
        self.events[place] = event

    def insert(
        self, after: Event, process: str, function: Any, asked: list[Any], value: Any, type_: EventType = "ok"
    ) -> Event:
        """Inserts an operation that begins and ends right after an event; returns its completion."""
        place = self.events.index(after) + 1
        index = after.index + 1
        like = {"producer_id": after.producer_id, "producer_epoch": after.producer_epoch}
        invoke = Event(index, after.time_ns, process, "invoke", function, asked, **like)  # type: ignore[arg-type]
        completion = Event(index + 1, after.time_ns, process, type_, function, value, index, **like)  # type: ignore[arg-type]
        self.events[place:place] = [invoke, completion]
        return completion

    def polls(self) -> Iterator[tuple[Event, list[Row]]]:
        """Yields all rows of all polls, also those in transactions."""
        for event in self.events:
            if event.type != "invoke" and event.value:
                if event.function == "poll":
                    yield event, event.value
                elif event.function == "txn":
                    yield event, [row for step in event.value if step[0] == "poll" for row in step[1]]

    def first_reads(self) -> dict[Row, Event]:
        found: dict[Row, Event] = {}
        for event, rows in self.polls():
            for row in rows:
                found.setdefault(_key(row), event)
        return found

    def acks(self) -> list[tuple[Row, Event]]:
        """Returns the acknowledged records of plain sends."""
        sends = self.completions("send", "ok")
        return [(_key(row), event) for event in sends for row in event.value or ()]

    def highest(self, partition: str, besides: str = "") -> int:
        """Returns the highest offset read, apart from one value."""
        reads = self.first_reads()
        return max((row[1] for row in reads if row[0] == partition and row[2] != besides), default=-1)

    def top(self, partition: str) -> int:
        """Returns an offset above all others."""
        return self.highest(partition) + self.random.randint(100, 200)

    def forget(self, partition: str, value: str) -> None:
        """Removes a value from all reads."""
        for event in list(self.events):
            if event.type != "invoke" and event.value:
                if event.function == "poll":
                    kept = [row for row in event.value if (row[0], row[2]) != (partition, value)]
                elif event.function == "txn":
                    kept = [
                        ["poll", [row for row in step[1] if (row[0], row[2]) != (partition, value)]]
                        if step[0] == "poll"
                        else step
                        for step in event.value
                    ]
                else:
                    continue
                self.put(replace(event, value=kept))

    def last_poll(self) -> Event:
        """Returns the last poll of one of the readers."""
        process = self.pick(
            sorted({event.process for event in self.completions("poll") if "audit" not in str(event.process)})
        )
        return [event for event in self.completions("poll") if event.process == process][-1]


def _key(row: Any) -> Row:
    return row[0], row[1], row[2]


def _times(index: int | None, factor: int) -> int | None:
    return None if index is None else index * factor


@dataclass(frozen=True)
class Mutation:
    kind: Kind
    plant: Callable[[History], None]
    besides: frozenset[Kind]


MUTATIONS: list[Mutation] = []
PIPELINE_MUTATIONS: list[Mutation] = []


def mutates(kind: Kind, *besides: Kind, to: list[Mutation] = MUTATIONS) -> Callable[[Any], Any]:
    def enter(plant: Callable[[History], None]) -> Callable[[History], None]:
        to.append(Mutation(kind, plant, frozenset(besides)))
        return plant

    return enter


@mutates(Kind.LOST_WRITE)
def lose(history: History) -> None:
    (partition, offset, value), _ = history.pick(history.acks())
    if offset > history.highest(partition, besides=value):
        raise Impossible
    history.forget(partition, value)


@mutates(Kind.UNSEEN)
def leave_unseen(history: History) -> None:
    acks = [row for row, _ in history.acks()]
    highest = {partition: history.highest(partition) for partition in sorted({row[0] for row in acks})}
    partition, _, value = history.pick([row for row in acks if row[1] == highest[row[0]]])
    history.forget(partition, value)


@mutates(Kind.DUPLICATE)
def duplicate(history: History) -> None:
    (partition, _, value), _ = history.pick(history.acks())
    poll = history.last_poll()
    history.put(replace(poll, value=[*(poll.value or ()), [partition, history.top(partition), value]]))


@mutates(Kind.INCONSISTENT_OFFSETS)
def contradict(history: History) -> None:
    reads = [(event, place) for event in history.completions("poll") for place in range(len(event.value or ()))]
    event, place = history.pick(reads)
    partition, offset, value = event.value[place]
    readers = [event for event, rows in history.polls() if any(_key(row) == (partition, offset, value) for row in rows)]
    if len(readers) < 2:
        raise Impossible
    rows = list(event.value)
    rows[place] = [partition, offset, "ghost"]
    history.put(replace(event, value=rows))
    history.insert(history.events[0], "stranger", "send", [[partition, None, "ghost"]], None, "info")


@mutates(Kind.PHANTOM_READ)
def invent(history: History) -> None:
    (partition, _, _), _ = history.pick(history.acks())
    poll = history.last_poll()
    history.put(replace(poll, value=[*(poll.value or ()), [partition, history.top(partition), "phantom"]]))


@mutates(Kind.FUTURE_READ)
def read_the_future(history: History) -> None:
    (partition, _, _), _ = history.pick(history.acks())
    poll, offset = history.last_poll(), history.top(partition)
    history.put(replace(poll, value=[*(poll.value or ()), [partition, offset, "late"]]))
    asked = [[partition, None, "late"]]
    history.insert(history.events[-1], "stranger", "send", asked, [[partition, offset, "late"]])


@mutates(Kind.INT_NONMONOTONIC_SEND)
def turn_a_send_round(history: History) -> None:
    sends = [
        event
        for event in history.completions("send")
        if len({row[0] for row in event.value or ()}) < len(event.value or ())
    ]
    event = history.pick(sends)
    invoke = history.invoke_of(event)
    history.put(replace(event, value=event.value[::-1]))
    history.put(replace(invoke, value=(invoke.value or [])[::-1]))


def _send_later(history: History, *, by_another: bool) -> None:
    """Moves a record to a send that begins after a higher offset was acknowledged, but before its first read."""
    acks, reads = history.acks(), history.first_reads()
    chances = []
    for row, event in acks:
        overtaking = next((pair for pair in acks if pair[0][0] == row[0] and pair[0][1] > row[1]), None)
        if overtaking and overtaking[1] is not event and overtaking[1].index < reads[row].index:
            chances.append((row, event, overtaking[1]))
    row, event, after = history.pick(chances)
    for old in (event, history.invoke_of(event)):
        history.put(replace(old, value=[kept for kept in old.value or () if kept[2] != row[2]]))
    process = "stranger" if by_another else str(after.process)
    after = next(event for event in history.events if event.index == after.index)
    history.insert(after, process, "send", [[row[0], None, row[2]]], [list(row)])


@mutates(Kind.NONMONOTONIC_SEND)
def send_later(history: History) -> None:
    _send_later(history, by_another=False)


@mutates(Kind.REALTIME_ORDER)
def send_later_by_another(history: History) -> None:
    _send_later(history, by_another=True)


@mutates(Kind.INT_NONMONOTONIC_POLL)
def repeat_inside_a_poll(history: History) -> None:
    event = history.pick([event for event in history.completions("poll") if event.value and not event.rebalanced])
    place = history.random.randrange(len(event.value))
    history.put(replace(event, value=[*event.value[: place + 1], *event.value[place:]]))


@mutates(Kind.NONMONOTONIC_POLL)
def poll_the_same_again(history: History) -> None:
    event = history.pick([event for event in history.completions("poll") if event.value and not event.rebalanced])
    history.insert(event, event.process, "poll", [], [event.value[-1]])


@mutates(Kind.INT_POLL_SKIP)
def leave_out_inside_a_poll(history: History) -> None:
    chances = []
    for event in history.completions("poll"):
        rows = event.value or []
        if not event.rebalanced:
            chances += [(event, place) for place in range(1, len(rows) - 1) if rows[place - 1][0] == rows[place + 1][0]]
    event, place = history.pick(chances)
    row = _key(event.value[place])
    if sum(row in map(_key, rows) for _, rows in history.polls()) < 2:
        raise Impossible
    history.put(replace(event, value=[*event.value[:place], *event.value[place + 1 :]]))


@mutates(Kind.POLL_SKIP)
def leave_out_between_polls(history: History) -> None:
    polls = [event for event in history.completions("poll") if event.value and "audit" not in str(event.process)]
    event = history.pick(polls)
    partition, offset, _ = event.value[-1]
    reads = history.first_reads()
    known = sorted(row for row, first in reads.items() if first.index < event.index)
    row = history.pick([row for row in known if row[0] == partition and row[1] > offset][1:])
    poll = history.insert(event, event.process, "poll", [], [list(row)])
    rest = sorted({row[0] for row in reads} - {partition})
    history.insert(poll, event.process, "assign", [], [*rest, [partition, offset + 1]])


def _answer(history: History, function: str, which: str) -> None:
    """Sets a response below one that was complete before the request."""
    place = 2 if function == "list_offsets" else 1
    chances = []
    answers = history.completions(function)
    for event in answers:
        asked = history.invoke_of(event).index
        for number, entry in enumerate(event.value or ()):
            before = [
                old[place]
                for earlier in answers
                if earlier.index < asked
                for old in earlier.value or ()
                if old[:place] == entry[:place] and which in (*entry, "")
            ]
            if before and max(before) > 0:
                chances.append((event, number, max(before)))
    event, number, before = history.pick(chances)
    entry = list(event.value[number])
    entry[place] = history.random.randrange(before)
    if place == 1:
        entry[2] = entry[1]
    history.put(replace(event, value=[*event.value[:number], tuple(entry), *event.value[number + 1 :]]))


@mutates(Kind.LISTED_OFFSET_REGRESS)
def list_a_lower_offset(history: History) -> None:
    _answer(history, "list_offsets", "latest")


@mutates(Kind.HIGH_WATERMARK_REGRESS)
def lower_the_high_watermark(history: History) -> None:
    _answer(history, "high_watermark", "")


@mutates(Kind.OFFSET_COMMIT_REGRESS)
def forget_a_commit(history: History) -> None:
    chances = []
    commits = history.completions("commit")
    for event in history.completions("fetch_committed"):
        asked = history.invoke_of(event).index
        for number, entry in enumerate(event.value or ()):
            for commit in commits:
                committed = history.invoke_of(commit).value or ()
                if commit.index < asked and any(old[1] == entry[1] for old in committed):
                    chances.append((event, number))
                    break
    event, number = history.pick(chances)
    group, partition, _ = event.value[number]
    history.put(replace(event, value=[*event.value[:number], (group, partition, None), *event.value[number + 1 :]]))


@mutates(Kind.STUCK_LSO)
def hold_the_last_stable_offset(history: History) -> None:
    event = history.completions("high_watermark")[-1]
    if event.index < history.completions("txn", "ok", "fail", "info")[-1].index:
        raise Impossible
    number = history.random.randrange(len(event.value or ()))
    partition, end, _ = (event.value or [])[number]
    entry = (partition, end, history.random.randrange(end))
    history.put(replace(event, value=[*(event.value or [])[:number], entry, *(event.value or [])[number + 1 :]]))


@mutates(Kind.ABORTED_READ)
def read_what_was_aborted(history: History) -> None:
    if history.random.random() < 0.5:
        event = history.pick(history.completions("send"))
        history.put(replace(event, type="fail"))
        return
    aborted = [
        (event, step) for event in history.completions("txn", "fail") for step in event.value or () if step[0] == "send"
    ]
    event, step = history.pick(aborted)
    after = history.pick([event, history.invoke_of(event), history.events[-1]])
    history.insert(after, "dirty", "poll", [], [[step[1], step[2], step[3]]])


@mutates(Kind.PRECOMMITTED_READ)
def read_own_sends(history: History) -> None:
    event = history.pick(
        [event for event in history.completions("txn") if any(step[0] == "send" for step in event.value or ())]
    )
    sends = [step[1:] for step in event.value if step[0] == "send"]
    own = history.pick(sends)
    history.put(replace(event, value=[*event.value, ["poll", [own]]], rebalanced=[own[0]]))


@mutates(Kind.TORN_TRANSACTION)
def tear(history: History) -> None:
    reads = {(row[0], row[2]): row[1] for row in history.first_reads()}
    chances = []
    for invoke in history.completions("txn", "invoke"):
        sends = [(step[1], step[3]) for step in invoke.value or () if step[0] == "send"]
        if len(sends) > 1 and all(send in reads for send in sends):
            chances += [send for send in sends if reads[send] < history.highest(*send)]
    history.forget(*history.pick(chances))


@mutates(Kind.G1C, Kind.G1C_REALTIME)
def read_from_each_other(history: History) -> None:
    ends = [event for event in history.completions("txn") if any(step[0] == "send" for step in event.value or ())]
    one, two = history.pick(
        [
            (one, two)
            for one in ends
            for two in ends
            if one.index < two.index and (history.invoke_of(two)).index < one.index
        ]
    )
    for reader, writer in ((one, two), (two, one)):
        row = next(step[1:] for step in writer.value if step[0] == "send")
        history.put(replace(reader, value=[*reader.value, ["poll", [row]]], rebalanced=[row[0]]))


@mutates(Kind.G1C_REALTIME)
def inform_by_a_detour(history: History) -> None:
    """Transaction a begins after c has ended, but b, which spans both, carries a's value to c."""
    last = history.events[-1]
    places = sorted(history.random.sample(range(1, len(history.events)), 4))
    after = [history.events[place] for place in places]
    steps = {name: ["send", f"side-{name}", 0, name] for name in "abc"}
    asked = {name: [["send", f"side-{name}", None, name]] for name in "abc"}

    def event(place: int, number: int, name: str, type_: EventType, value: Any, operation: int | None = None) -> Event:
        at = after[place]
        added = Event(at.index + number, at.time_ns, f"side-{name}", type_, "txn", value, operation)
        history.events.append(added)
        return added

    begun_c = event(0, 10, "c", "invoke", asked["c"])
    begun_b = event(0, 11, "b", "invoke", asked["b"])
    event(1, 10, "c", "ok", [steps["c"], ["poll", [["side-b", 0, "b"]]]], begun_c.index)
    begun_a = event(2, 10, "a", "invoke", asked["a"])
    event(2, 11, "a", "ok", [steps["a"]], begun_a.index)
    event(3, 10, "b", "ok", [steps["b"], ["poll", [["side-a", 0, "a"]]]], begun_b.index)
    history.events.sort(key=lambda event: event.index)
    history.insert(last, "side-r", "poll", [], [[f"side-{name}", 0, name] for name in "abc"])


@mutates(Kind.PIPELINE_NOT_ONCE, to=PIPELINE_MUTATIONS)
def put_out_twice(history: History) -> None:
    row = history.pick([row for row in history.first_reads() if "/" in row[2]])
    value, offset = row[2].partition("/")[0] + "/again", history.top(row[0])
    after = history.insert(history.events[-1], "stranger", "send", [[row[0], None, value]], [[row[0], offset, value]])
    history.insert(after, "stranger", "poll", [], [[row[0], offset, value]])


@mutates(Kind.PIPELINE_NOT_ONCE, Kind.LOST_WRITE, Kind.UNSEEN, Kind.TORN_TRANSACTION, to=PIPELINE_MUTATIONS)
def put_out_nothing(history: History) -> None:
    row = history.pick([row for row in history.first_reads() if "/" in row[2]])
    history.forget(row[0], row[2])
