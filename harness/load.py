"""librdkafka load for runs with broker crashes: idempotent producers, and consumers with assigned partitions.

Every client records its operations and their results for `penstock.verify`. Values are unique; where librdkafka
chooses the partition, the partition is recorded once it is known.
"""

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from harness.kafka.oracle import java_command
from penstock.verify.check import check
from penstock.verify.history import Event, merge_histories, read_history
from penstock.verify.recorder import OpenOperation, Recorder
from penstock.verify.report import Report

CALM: dict[str, str | int | float | bool] = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "topic.metadata.refresh.interval.ms": 1_000,
    "socket.connection.setup.timeout.ms": 2_000,
    "log_level": 0,
}
"""Short backoffs, so that clients reconnect soon after a broker restarts."""
ASK_S = 30.0
ANSWER_S, REST_S = 0.5, 0.25
"""Timeout of an `Asker`'s request, and the pause before its next request."""
LAST_ANSWER_S = 5.0
"""The same once faults are over: a busy machine may take longer than `ANSWER_S` over every request of a short run."""
CATCH_UP_S = 60.0
SPOILT_S = 5.0
"""Time to catch up in a run that has already failed."""
PATIENCE_MS = 300_000
"""Delivery timeout of a record; a writer reports a record that reaches it as a problem."""
WRITERS = 3
OUTSTANDING_MAX = 1_000
NICE = 10
OFFSET_SPEC: Any = OffsetSpec  # its type hints wrongly require an instance
BOTH_ENDS = (("earliest", OFFSET_SPEC.earliest()), ("latest", OFFSET_SPEC.latest()))


def create_topics(
    bootstrap: str, topics: Iterable[tuple[str, int]], *, replication_factor: int = 1, **settings: str
) -> None:
    """Creates topics, given as names with partition counts."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **CALM})
    names = {name.replace("_", "."): value for name, value in settings.items()}
    wanted = [NewTopic(topic, count, replication_factor, config=names) for topic, count in topics]
    for created in admin.create_topics(wanted, operation_timeout=ASK_S).values():
        try:
            created.result(ASK_S)
        except confluent_kafka.KafkaException as error:
            # The response to the first attempt may have been lost with its connection.
            if error.args[0].code() != confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def list_offsets(
    admin: Any, places: Iterable[tuple[str, int]], which: Any, timeout_s: float
) -> dict[tuple[str, int], int | str]:
    """The earliest or latest offsets of partitions; for a partition whose leader reports an error, its text.

    `get_watermark_offsets` is not used: librdkafka 2.16 requests both ends of a log there, drops the error of one if
    the response to the other follows immediately, and returns the offset that it has as both. For a node that went away
    `list_offsets` returns `OFFSET_INVALID` without an error; no node sends that offset.
    """
    asked = {confluent_kafka.TopicPartition(*place): which for place in places}
    said: dict[tuple[str, int], int | str] = {}
    for place, answer in admin.list_offsets(asked, request_timeout=timeout_s).items():
        try:
            offset = answer.result(ASK_S).offset
            said[place.topic, place.partition] = "no answer" if offset == confluent_kafka.OFFSET_INVALID else offset
        except confluent_kafka.KafkaException as error:
            said[place.topic, place.partition] = str(error)
    return said


def ends_of(bootstrap: str, places: Iterable[tuple[str, int]], deadline: float) -> dict[tuple[str, int], int]:
    """The end offsets of partitions, requested until all leaders answer; raises the last errors at the deadline."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **CALM})
    ends: dict[tuple[str, int], int] = {}
    left = set(places)
    while left:
        said = list_offsets(admin, left, OFFSET_SPEC.latest(), ASK_S)
        ends |= {place: end for place, end in said.items() if isinstance(end, int)}
        left -= ends.keys()
        if left and time.monotonic() > deadline:
            unknown = {place: said[place] for place in left}
            raise TimeoutError(f"where partitions end: {unknown}")
        if left:  # for example a newly elected leader that does not know the end yet
            time.sleep(0.05)
    return ends


def let_others_go_first() -> None:
    """Lowers the priority of librdkafka's threads; to be called after a client was created.

    The threads busy-loop while they hold records that they may not send, which takes a core from restarting nodes.
    Threads created later inherit the priority.
    """
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended
            if (task / "comm").read_text().startswith("rdk:"):
                os.setpriority(os.PRIO_PROCESS, int(task.name), NICE)


class Diary:
    """The events that one thread records, on a clock that all threads share."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.recorder = Recorder.in_memory(time.monotonic_ns, self.events.append)


class Client(threading.Thread):
    """A client thread that records its operations and collects problems that should never occur."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.diary = Diary()
        self.problems: list[str] = []

    def leave(self) -> None:
        """Stops the client at once and closes its connections."""
        raise NotImplementedError


class Writer(Client):
    """An idempotent producer with 5 in-flight requests; sends by key, by partition, or where librdkafka chooses."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        places: Sequence[tuple[str, int]],
        rate: float,
        seed: int,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        super().__init__(name)
        self.acked = 0
        self.is_finished = False
        self.identities: set[tuple[int, int]] = set()
        """Producer ids and epochs that this writer has had."""
        self._places = places
        self._rate = rate
        self._random = Random(seed)
        self._stopping = threading.Event()
        self._sent = self._ended = 0
        self._producer: Any = confluent_kafka.Producer(
            {
                **CALM,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 5,
                "linger.ms": self._random.choice((0, 2, 5)),
                "batch.num.messages": self._random.choice((5, 50, 1000)),
                "message.timeout.ms": patience_ms,
                "request.timeout.ms": 5_000,
                "statistics.interval.ms": 200,
                "stats_cb": self._on_statistics,
                "error_cb": self._on_error,
            }
        )
        let_others_go_first()

    def run(self) -> None:
        try:
            self._work()
        except confluent_kafka.KafkaException as error:
            self.problems.append(f"{self.name}: {error}")

    def _work(self) -> None:
        for topic in {topic for topic, _ in self._places}:
            self._learn(topic)  # otherwise the first records are partitioned in any order
        began = time.monotonic()
        while not self._stopping.is_set():
            due = (time.monotonic() - began) * self._rate
            while self._sent < due and self._sent - self._ended < OUTSTANDING_MAX:
                self._send()
            if self._sent < due:
                began = time.monotonic() - self._sent / self._rate  # a backlog is not made up for
            self._producer.poll(0.01)

    def _learn(self, topic: str) -> None:
        deadline = time.monotonic() + CATCH_UP_S
        while True:
            try:
                self._producer.list_topics(topic, 2.0)
            except confluent_kafka.KafkaException:  # the broker is down
                if time.monotonic() > deadline:
                    raise
            else:
                return

    def finish(self, deadline: float) -> None:
        """Stops sending and waits for the records in flight."""
        self.is_finished = True
        self._stopping.set()
        self.join(ASK_S)
        with self._problem_of_errors():
            self._producer.flush(max(0.0, deadline - time.monotonic()))
        if self._sent != self._ended:
            self.problems.append(f"{self.name}: {self._sent - self._ended} records were never answered")

    def give_up(self) -> None:
        """Purges unacknowledged records, so that they are not sent again."""
        if self._producer is not None:
            with self._problem_of_errors():
                self._producer.purge()
                self._producer.poll(0)

    @contextmanager
    def _problem_of_errors(self) -> Iterator[None]:
        """Adds an error of the producer to the problems; every later call raises a fatal error again."""
        try:
            yield
        except (confluent_kafka.KafkaException, SystemError) as error:  # the latter after a fatal error
            self.problems.append(f"{self.name}: {error}")

    def leave(self) -> None:
        """Stops, purges unacknowledged records and drops the producer, so that it no longer reconnects."""
        self._stopping.set()
        self.join(ASK_S)
        self.give_up()
        self._producer = None

    def _send(self) -> None:
        random = self._random
        topic, partition = random.choice(self._places)
        value = f"{self.name}.{self._sent}"
        body = f"{value} {'.' * random.choice((0, 20, 400, 1500))}"
        row: list[Any] = [f"{topic}-unknown", None, value]
        operation = self.diary.recorder.invoke(self.name, "send", [row])

        def on_delivery(error: Any, message: Any) -> None:
            self._delivered(operation, row, error, message)

        way = random.randrange(3)
        more: dict[str, Any] = {"key": f"k{random.randrange(50)}"} if way == 0 else {}
        if way == 1:
            more["partition"] = partition
        self._producer.produce(topic, body, on_delivery=on_delivery, **more)
        self._sent += 1

    def _delivered(self, operation: OpenOperation, row: list[Any], error: Any, message: Any) -> None:
        self._ended += 1
        row[0] = f"{message.topic()}-{message.partition()}"
        if error is not None:
            self.problems.append(f"{self.name}: {row[2]} was given up: {error}")
            operation.info(str(error))
            return
        self.acked += 1
        operation.ok([[row[0], message.offset(), row[2]]])

    def _on_statistics(self, text: str) -> None:
        eos = json.loads(text).get("eos", {})
        if eos.get("producer_id", -1) >= 0:
            self.identities.add((eos["producer_id"], eos["producer_epoch"]))

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.problems.append(f"{self.name}: fatal: {error}")


class Follower(Client):
    """Reads its partitions from their beginning."""

    def __init__(self, name: str, bootstrap: str, places: Sequence[tuple[str, int]]) -> None:
        super().__init__(name)
        self.read = 0
        self._address = bootstrap
        self._places = places
        self._stopping = threading.Event()
        self._positions = dict.fromkeys(places, 0)
        self._consumer: Any = confluent_kafka.Consumer(
            {
                **CALM,
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 50,
            }
        )
        let_others_go_first()

    def run(self) -> None:
        names = [f"{topic}-{partition}" for topic, partition in self._places]
        value = [[name, 0] for name in names]
        self.diary.recorder.invoke(self.name, "assign", value).ok(value)
        self._consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for topic, index in self._places])
        while not self._stopping.is_set():
            self._poll()

    def _poll(self) -> None:
        messages = self._consumer.consume(500, 0.05)
        if not messages:
            return
        operation = self.diary.recorder.invoke(self.name, "poll")
        rows = []
        for message in messages:
            if message.error() is not None:
                if not message.error().retriable():
                    self.problems.append(f"{self.name}: {message.error()}")
                continue
            place = message.topic(), message.partition()
            rows.append([f"{place[0]}-{place[1]}", message.offset(), message.value().partition(b" ")[0].decode()])
            self._positions[place] = message.offset() + 1
        self.read += len(rows)
        operation.ok(rows)

    def finish(self, deadline: float) -> None:
        """Reads to the end of every partition, and stops."""
        try:
            ends = ends_of(self._address, self._places, deadline)
        except TimeoutError as error:
            self.problems.append(f"{self.name}: {error}")
            ends = {}
        while any(self._positions[place] < end for place, end in ends.items()) and time.monotonic() < deadline:
            time.sleep(0.02)
        behind = {place: (self._positions[place], end) for place, end in ends.items() if self._positions[place] < end}
        if behind:
            self.problems.append(f"{self.name}: did not reach the end: {behind}")
        self.leave()

    def leave(self) -> None:
        """Stops reading."""
        self._stopping.set()
        self.join(ASK_S)
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


class Asker(Client):
    """Repeatedly lists the earliest and latest offsets of partitions."""

    def __init__(self, name: str, bootstrap: str, places: Sequence[tuple[str, int]]) -> None:
        super().__init__(name)
        self.answers = 0
        self._places = places
        self._stopping = threading.Event()
        self._admin: Any = AdminClient({"bootstrap.servers": bootstrap, **CALM})
        let_others_go_first()

    def run(self) -> None:
        with self._failures_as_problems():
            while not self._stopping.is_set():
                for which, spec in BOTH_ENDS:
                    self._ask(which, spec, ANSWER_S)
                    self._stopping.wait(REST_S)

    @contextmanager
    def _failures_as_problems(self) -> Iterator[None]:
        try:
            yield
        except (confluent_kafka.KafkaException, TimeoutError) as error:
            self.problems.append(f"{self.name}: {error!r}")

    def _ask(self, which: str, spec: Any, timeout_s: float) -> None:
        names = {place: f"{place[0]}-{place[1]}" for place in self._places}
        operation = self.diary.recorder.invoke(self.name, "list_offsets", [[name, which] for name in names.values()])
        said = list_offsets(self._admin, self._places, spec, timeout_s)
        found = [[names[place], which, offset] for place, offset in said.items() if isinstance(offset, int)]
        self.answers += len(found)
        if found:
            operation.ok(found)
        else:
            operation.info(str(next(iter(said.values()))))

    def finish(self, deadline: float) -> None:
        """Lists both ends once more, now that no fault follows, and stops."""
        self._stopping.set()
        self.join(ASK_S)
        with self._failures_as_problems():
            for which, spec in BOTH_ENDS:
                before = self.answers
                while self.answers == before and time.monotonic() < deadline:
                    self._ask(which, spec, LAST_ANSWER_S)
        self.leave()

    def leave(self) -> None:
        """Stops listing offsets."""
        if self._admin is None:
            return
        self._stopping.set()
        self.join(ASK_S)
        self._admin = None
        if not self.answers:
            self.problems.append(f"{self.name}: nobody ever said where a partition begins or ends")


class JavaWriter(Client):
    """Kafka's own producer, idempotent, in a process of its own (`penstock.Load`)."""

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int, rate: float, seed: int) -> None:
        super().__init__(name)
        self.acked = 0
        self._process = subprocess.Popen(
            [*java_command("penstock.Load"), bootstrap, name, topic, str(partitions), str(rate), str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self) -> None:
        assert self._process.stdout is not None
        for event in read_history(self._process.stdout):
            self.diary.events.append(event)
            if event.type == "ok":
                self.acked += 1
            elif event.type == "info":
                self.problems.append(f"{self.name}: {event.value} was given up: {event.error}")

    def finish(self, deadline: float) -> None:
        """Stops sending and waits for the records in flight."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self.join(max(0.0, deadline - time.monotonic()))
        if self.is_alive():
            self.problems.append(f"{self.name}: records were never answered")
            self._process.kill()
        self._process.stdout.close()
        if self._process.wait(ASK_S):
            self.problems.append(f"{self.name}: it ended with {self._process.returncode}")

    def leave(self) -> None:
        """Kills the process if it still runs."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait(ASK_S)
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self.join(ASK_S)
        self._process.stdout.close()


class Load:
    """Several writers and followers on the same partitions, and optionally a Java writer on a topic of its own.

    Use it in a `with`: otherwise a test that ends before `finish` leaves clients behind, which try to reconnect for as
    long as the process lives.
    """

    def __init__(
        self,
        bootstrap: str,
        topics: Sequence[tuple[str, int]],
        *,
        rate: float,
        seed: int,
        java: tuple[str, int, float] | None = None,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        self._bootstrap = bootstrap
        self._places = [(topic, index) for topic, count in topics for index in range(count)]
        self._rate = rate / WRITERS
        self._seed = seed
        self._patience_ms = patience_ms
        self.writers: list[Writer] = []
        self._java: list[JavaWriter] = []
        followed = list(self._places)
        if java is not None:
            topic, count, java_rate = java
            followed += [(topic, index) for index in range(count)]
            self._java.append(JavaWriter("java", bootstrap, topic, count, java_rate, seed))
            self._java[0].start()
        self.followers = [Follower(f"r{n}", bootstrap, followed) for n in range(2)]
        self._asker = Asker("asks", bootstrap, followed)
        for client in (*self.followers, self._asker):
            client.start()
        for _ in range(WRITERS):
            self._add_writer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self.clients:
            client.leave()

    def _add_writer(self) -> None:
        number = len(self.writers)
        seed = self._seed * 1_000 + number
        writer = Writer(f"w{number}", self._bootstrap, self._places, self._rate, seed, self._patience_ms)
        self.writers.append(writer)
        writer.start()

    def replace_writer(self) -> None:
        """Replaces the newest writer by one that gets its producer id from a later incarnation of the broker."""
        self.writers[-1].finish(time.monotonic() + CATCH_UP_S)
        self._add_writer()

    @property
    def clients(self) -> list[Client]:
        """All clients, replaced writers included."""
        return [*self.writers, *self._java, *self.followers, self._asker]

    @property
    def acked(self) -> int:
        """Records that were acknowledged so far."""
        return sum(each.acked for each in self.writers) + sum(each.acked for each in self._java)

    @property
    def problems(self) -> list[str]:
        """Problems that no client may have, whatever faults the broker had."""
        found = [problem for client in self.clients for problem in client.problems]
        found += [
            f"{writer.name}: its producer id or epoch has changed: {sorted(writer.identities)}"
            for writer in self.writers
            if len(writer.identities) > 1
        ]
        ids = [identity[0] for writer in self.writers for identity in writer.identities]
        if len(set(ids)) < len(ids):
            found.append(f"one producer id was given to two: {ids}")
        return found

    def finish(self, *, is_spoilt: bool = False) -> Report:
        """Waits for records in flight, lets all followers read to the end, and returns the report of the checks."""
        deadline = time.monotonic() + (SPOILT_S if is_spoilt else CATCH_UP_S)
        for writer in self.writers:
            if not writer.is_finished:
                writer.finish(deadline)
        for each in self._java:
            each.finish(deadline)
        deadline = time.monotonic() + (SPOILT_S if is_spoilt or self.problems else CATCH_UP_S)
        for follower in self.followers:
            follower.finish(deadline)
        self._asker.finish(deadline)
        return check(self._history())

    def give_up(self) -> None:
        """Purges the records that writers still hold after `finish`."""
        for writer in self.writers:
            writer.give_up()

    def _history(self) -> Iterator[Event]:
        return merge_histories(*(client.diary.events for client in self.clients))
