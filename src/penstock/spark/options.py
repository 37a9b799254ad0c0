"""The options of `format("penstock")`: those of Spark's Kafka connector under the same names, and a few of our own.

A query written for the connector must run unchanged, so the same options are accepted and refused. The source is
stricter only where ignoring an error would hurt: a misspelled name, and options that contradict each other. Spark
passes option names in lower case. Our own options are in snake_case.
"""

import difflib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, NamedTuple

from penstock.client.bootstrap import parse_addresses
from penstock.client.configuration.config import SECURITY
from penstock.client.metadata import TopicPartition
from penstock.client.offsets import Isolation
from penstock.spark.offsets import EARLIEST, LATEST, JsonError, Offsets, read_numbers, read_partitions, shown

KAFKA = "kafka."
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"
MIB = 1024 * 1024

SPELLED = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "includeHeaders",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "on_gap",
    "dlq_topic",
    "columns",
    "pushdown",
    "task_bytes",
    "max_bytes_per_trigger",
    "topic_ids_file",
    "commit_group",
    "view",
)
KAFKA_SPELLED = (
    "bootstrap.servers",
    "client.id",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "group.id",
    "isolation.level",
    "max.partition.fetch.bytes",
    "request.timeout.ms",
    "ssl.cipher.suites",
    *SECURITY,
)
_KAFKA_NUMBERS = ("fetch.max.bytes", "fetch.max.wait.ms", "max.partition.fetch.bytes", "request.timeout.ms")
_REFUSED = {
    "auto.offset.reset": "where to start is said by startingOffsets, and after a restart by the checkpoint",
    "key.deserializer": "keys come as bytes: decode them with DataFrame operations",
    "value.deserializer": "values come as bytes: decode them with DataFrame operations",
    "enable.auto.commit": "the checkpoint keeps the offsets, and commit_group names a group that shows them",
    "interceptor.classes": "no Java code runs here",
}
_LIKELY = 0.85
_LIKELY_KAFKA = 0.93  # the Java client has many settings, and some are spelled much alike
_SCHEME = re.compile(r"\w+://")
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE)
_TIME = re.compile(r"(\d+)\s*([a-z]*)", re.IGNORECASE)
_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

log = logging.getLogger("penstock.spark")

Options = Mapping[str, str]
"""Option values by lower-case name."""


class OptionError(ValueError):
    """An invalid option; the message says how to correct it."""


class Named(NamedTuple):
    """All partitions of these topics."""

    names: tuple[str, ...]


class Matching(NamedTuple):
    """All partitions of the topics whose names contain a match of the pattern."""

    pattern: str


class Assigned(NamedTuple):
    """These partitions."""

    partitions: tuple[TopicPartition, ...]


Subscription = Named | Matching | Assigned


class AtOffsets(NamedTuple):
    """An offset for each partition, or -1 for its end, or -2 for its start."""

    offsets: Offsets


class SinceEach(NamedTuple):
    """A timestamp for each partition."""

    timestamps_ms: Mapping[TopicPartition, int]


class Since(NamedTuple):
    """One timestamp for all partitions."""

    timestamp_ms: int


Bound = Literal["earliest", "latest"] | AtOffsets | SinceEach | Since


class OnGap(Enum):
    """The policy for records to be read that are no longer in the log."""

    FAIL = "fail"
    SKIP = "skip"
    DLQ = "dlq"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options. `start` and `end` apply if there is no checkpoint."""

    bootstrap: str
    subscription: Subscription
    start: Bound
    end: Bound
    is_late_start_allowed: bool
    """Whether a start timestamp after all records means the latest offset."""
    columns: tuple[str, ...]
    on_gap: OnGap
    dlq_topic: str | None
    isolation: Isolation
    offsets_max: int | None
    offsets_min: int | None
    bytes_max: int | None
    delay_ms_max: int
    tasks_min: int | None
    task_offsets_max: int | None
    task_bytes: int
    client_id: str
    is_pushdown_on: bool
    is_latest: bool
    """Whether only the last record of each key is read, and none if that is a tombstone."""
    topic_ids_file: str | None
    commit_group: str | None
    """The group to which a stream commits its progress."""
    poll_timeout_ms: int
    """How long a reader waits for records that must exist."""
    fetch_attempts: int
    fetch_pause_ms: int
    kafka: Mapping[str, str] = field(repr=False)
    """The client's settings, without their prefix: logins, TLS, sizes. Passwords are among them."""

    @property
    def has_headers(self) -> bool:
        """Whether the headers are among the columns."""
        return HEADERS in self.columns

    def kafka_number(self, name: str, otherwise: int) -> int:
        """A numeric setting of the client."""
        text = self.kafka.get(name)
        return otherwise if text is None else _whole(KAFKA + name, text, 0)


def batch_options(options: Options) -> SourceOptions:
    """The options of `spark.read`."""
    found = _read(options, start="earliest")
    for name in (
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "max_bytes_per_trigger",
        "commit_group",
    ):
        if name.lower() in options:
            log.warning("%s has no meaning in a batch and is ignored", name)
    if found.start == "latest" or (isinstance(found.start, AtOffsets) and LATEST in found.start.offsets.values()):
        raise OptionError("A batch cannot start at the latest offset: give startingOffsets that lie before it.")
    if found.end == "earliest" or (isinstance(found.end, AtOffsets) and EARLIEST in found.end.offsets.values()):
        raise OptionError("A batch cannot end at the earliest offset: give endingOffsets that lie behind it.")
    _check_order(found.start, found.end)
    if found.is_latest and found.is_pushdown_on:
        raise OptionError("view=latest needs all records to know the last: leave out pushdown.")
    return found


def stream_options(options: Options) -> SourceOptions:
    """The options of `spark.readStream`."""
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if name.lower() in options:
            raise OptionError(f"A stream has no end: leave out {name}, or read a batch with spark.read.")
    found = _read(options, start="latest")
    if found.is_latest:
        raise OptionError("view=latest is what a topic holds at one moment: read it as a batch, with spark.read.")
    return found


def check_options(options: Options) -> SourceOptions:
    """Checks that apply to batches and streams alike."""
    found = _read(options, start="earliest")
    for name in _KAFKA_NUMBERS:
        found.kafka_number(name, 0)
    for name in sorted(found.kafka.keys() - set(KAFKA_SPELLED)):
        log.warning("%s%s means nothing to the penstock source and is ignored", KAFKA, name)
    return found


def check_kafka(kafka: Mapping[str, str]) -> None:
    """Checks settings of Kafka's clients, without their prefix, for misspelled names and wrong numbers."""
    _check_names({KAFKA + name: value for name, value in kafka.items()})
    for name in _KAFKA_NUMBERS:
        if name in kafka:
            _whole(KAFKA + name, kafka[name], 0)
    _isolation(kafka)


def columns_of(options: Options) -> tuple[str, ...]:
    """The columns of the result, in order."""
    has_headers = _truth(options, "includeHeaders", default=False)
    every = (*COLUMNS, HEADERS) if has_headers else COLUMNS
    chosen = options.get("columns")
    if chosen is None:
        return every
    by_name = {name.lower(): name for name in (*COLUMNS, HEADERS)}
    names = _parts(chosen)
    unknown = [name for name in names if name.lower() not in by_name]
    if unknown or not names or len(set(names)) < len(names):
        raise OptionError(f"columns is {chosen!r}: name some of {', '.join((*COLUMNS, HEADERS))}, each once.")
    return tuple(by_name[name.lower()] for name in names)


# --- all options


def _read(options: Options, start: Literal["earliest", "latest"]) -> SourceOptions:
    _check_names(options)
    kafka = {name[len(KAFKA) :]: value for name, value in options.items() if name.startswith(KAFKA)}
    on_gap, dlq_topic = _on_gap(options)
    offsets_max = _number(options, "maxOffsetsPerTrigger", 1)
    offsets_min = _number(options, "minOffsetsPerTrigger", 0)
    if offsets_max is not None and offsets_min is not None and offsets_min > offsets_max:
        raise OptionError(
            f"minOffsetsPerTrigger is {offsets_min} and maxOffsetsPerTrigger only {offsets_max}: no batch can be both."
        )
    pause_ms = _number(options, "fetchOffset.retryIntervalMs", 0)
    strategy = _one_of(options, "startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    return SourceOptions(
        bootstrap=_bootstrap(kafka),
        subscription=_subscription(options),
        start=_bound(options, "starting", start),
        end=_bound(options, "ending", "latest"),
        is_late_start_allowed=strategy == "latest",
        columns=columns_of(options),
        on_gap=on_gap,
        dlq_topic=dlq_topic,
        isolation=_isolation(kafka),
        offsets_max=offsets_max,
        offsets_min=offsets_min,
        bytes_max=_size(options, "max_bytes_per_trigger"),
        delay_ms_max=_time_ms(options, "maxTriggerDelay", 15 * 60_000),
        tasks_min=_number(options, "minPartitions", 1),
        task_offsets_max=_number(options, "maxRecordsPerPartition", 1),
        task_bytes=_size(options, "task_bytes") or 128 * MIB,
        client_id=_client_id(options, kafka),
        is_pushdown_on=_truth(options, "pushdown", default=False),
        is_latest=_one_of(options, "view", ("all", "latest"), "all") == "latest",
        topic_ids_file=options.get("topic_ids_file"),
        commit_group=_commit_group(options),
        poll_timeout_ms=_number(options, "kafkaConsumer.pollTimeoutMs", 1) or 120_000,
        fetch_attempts=_number(options, "fetchOffset.numRetries", 1) or 3,
        fetch_pause_ms=1000 if pause_ms is None else pause_ms,
        kafka=kafka,
    )


def _check_names(options: Options) -> None:
    known = {name.lower(): name for name in SPELLED}
    kafka_known = {KAFKA + name: KAFKA + name for name in KAFKA_SPELLED}
    for name in options:
        if name in known or name in kafka_known:
            continue
        if name.startswith(KAFKA):
            if reason := _REFUSED.get(name[len(KAFKA) :]):
                raise OptionError(f"Leave out {name}: {reason}.")
            _check_spelling(name, kafka_known, _LIKELY_KAFKA)
        else:
            _check_spelling(name, known, _LIKELY)
            log.warning("option %s means nothing to the penstock source and is ignored", name)


def _check_spelling(name: str, known: Mapping[str, str], likely: float) -> None:
    if close := difflib.get_close_matches(name, known, n=1, cutoff=likely):
        raise OptionError(f"There is no option {name}: did you mean {known[close[0]]}?")


def _bootstrap(kafka: Mapping[str, str]) -> str:
    text = _SCHEME.sub("", kafka.get("bootstrap.servers", "").strip())  # the Java client skips it, too
    if not text:
        raise OptionError("Say where the cluster is: set kafka.bootstrap.servers to host:port.")
    try:
        parse_addresses(text)
    except ValueError as error:
        raise OptionError(f"kafka.bootstrap.servers: {error}.") from None
    return text


def _subscription(options: Options) -> Subscription:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in options]
    if len(given) != 1:
        hint = " (topic is where a query writes to)" if not given and "topic" in options else ""
        found = f", not {' and '.join(given)} together" if given else ""
        raise OptionError(f"Say what to read: set one of subscribe, subscribePattern and assign{found}{hint}.")
    (name,) = given
    text = options[name.lower()].strip()
    match name:
        case "subscribe":
            if not (topics := _parts(text)):
                raise OptionError("subscribe names no topic: give names, with commas between them.")
            return Named(tuple(dict.fromkeys(topics)))
        case "subscribePattern":
            try:
                re.compile(text)
            except re.error as error:
                raise OptionError(f"subscribePattern {text!r} is not a regular expression: {error}.") from None
            if not text:
                raise OptionError("subscribePattern is empty: give a regular expression that topic names are held to.")
            return Matching(text)
    try:
        partitions = read_partitions(text)
    except JsonError as error:
        raise OptionError(f"assign: {error}.") from None
    if not partitions:
        raise OptionError('assign names no partition: give something like {"orders": [0, 1]}.')
    return Assigned(tuple(partitions))


def _bound(options: Options, which: Literal["starting", "ending"], otherwise: Literal["earliest", "latest"]) -> Bound:
    """The start or the end. One timestamp takes precedence over timestamps by partition, and these over offsets."""
    timestamp, by_timestamp, offsets = f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"
    if (text := options.get(timestamp.lower())) is not None:
        return Since(_whole(timestamp, text, 0))
    try:
        if (text := options.get(by_timestamp.lower())) is not None:
            name = by_timestamp
            return SinceEach(read_numbers(text, '{"orders": {"0": 1735689600000}}'))
        text = options.get(offsets.lower(), otherwise).strip()
        name = offsets
        if text.lower() in ("earliest", "latest"):
            return "earliest" if text.lower() == "earliest" else "latest"
        numbers = read_numbers(text, '{"orders": {"0": 23, "1": -1}}, "earliest" or "latest"')
    except JsonError as error:
        raise OptionError(f"{name}: {error}.") from None
    if any(number < EARLIEST for number in numbers.values()):
        raise OptionError(f"{offsets}: an offset is 0 or more, or -1 for the latest, or -2 for the earliest.")
    return AtOffsets(numbers)


def _check_order(start: Bound, end: Bound) -> None:
    """Checks the bounds of a batch as far as possible without the cluster."""
    match start, end:
        case AtOffsets(first), AtOffsets(last):
            kind = "Offsets"
        case SinceEach(first), SinceEach(last):
            kind = "OffsetsByTimestamp"
        case _:
            return
    if first.keys() != last.keys():
        missing = shown(first.keys() ^ last.keys())
        raise OptionError(f"starting{kind} and ending{kind} must name the same partitions; only one has {missing}.")
    for partition, number in first.items():
        if number > last[partition] >= 0:
            raise OptionError(
                f"starting{kind} has {number} for {partition} and ending{kind} {last[partition]}: "
                "a batch starts before it ends."
            )


def _on_gap(options: Options) -> tuple[OnGap, str | None]:
    fails = _truth(options, "failOnDataLoss", default=True)
    default = OnGap.FAIL if fails else OnGap.SKIP
    found = OnGap(_one_of(options, "on_gap", [each.value for each in OnGap], default.value))
    if "failondataloss" in options and fails != (found is OnGap.FAIL):
        raise OptionError(
            f"failOnDataLoss is {str(fails).lower()} and on_gap is {found.value}: they contradict each other, keep one."
        )
    topic = options.get("dlq_topic", "").strip() or None
    if (found is OnGap.DLQ) != (topic is not None):
        raise OptionError("on_gap=dlq and dlq_topic go together: the topic takes a message for each gap.")
    return found, topic


def _isolation(kafka: Mapping[str, str]) -> Isolation:
    text = kafka.get("isolation.level", "read_uncommitted").strip().upper()
    if text not in Isolation.__members__:
        raise OptionError(f"kafka.isolation.level is read_uncommitted or read_committed, not {text.lower()}.")
    return Isolation[text]


def _client_id(options: Options, kafka: Mapping[str, str]) -> str:
    """Falls back to the group's name: no group is joined, but operators search a broker's logs for it."""
    return kafka.get("client.id") or kafka.get("group.id") or options.get("groupidprefix") or "penstock-spark"


def _commit_group(options: Options) -> str | None:
    name = options.get("commit_group")
    if name is not None and not name.strip():
        raise OptionError("commit_group is empty: name a group, or leave it out.")
    return None if name is None else name.strip()


# --- single values


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _one_of(options: Options, name: str, allowed: Sequence[str], otherwise: str) -> str:
    text = options.get(name.lower(), otherwise).strip().lower()
    if text not in allowed:
        raise OptionError(f"{name} is one of {', '.join(allowed)}, not {text}.")
    return text


def _truth(options: Options, name: str, *, default: bool) -> bool:
    return _one_of(options, name, ("true", "false"), str(default).lower()) == "true"


def _number(options: Options, name: str, least: int) -> int | None:
    text = options.get(name.lower())
    return None if text is None else _whole(name, text, least)


def _whole(name: str, text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise OptionError(f"{name} is a whole number from {least} on, not {text}.")
    return number


def _size(options: Options, name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise OptionError(f"{name} is a size such as 134217728 or 128m, not {text}.")
    return int(found[1]) << _SHIFT[found[2].lower()]


def _time_ms(options: Options, name: str, otherwise: int) -> int:
    text = options.get(name.lower())
    if text is None:
        return otherwise
    found = _TIME.fullmatch(text.strip())
    if found is None or found[2].lower() not in _MS:
        raise OptionError(f"{name} is a time such as 30s, 15m or 1h, not {text}.")
    return int(found[1]) * _MS[found[2].lower()]
