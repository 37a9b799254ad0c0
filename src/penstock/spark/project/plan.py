"""The content of `penstock.yml` as values: the cluster, Spark, and the pipelines. Paths are relative to the file."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

from penstock.client.bootstrap import find_cluster, parse_addresses
from penstock.spark.project.quantities import parse_size_bytes, parse_time_ms
from penstock.spark.project.sections import ProjectError, Section, nearest, read_yaml

VERSION = "1"
FILE = Path("penstock.yml")
MIB = 1024 * 1024
TRIGGER_MS = 60_000
BATCH_BYTES_MAX = 2048 * MIB
FILE_BYTES = 512 * MIB
FILE_BYTES_LEAST, FILE_BYTES_MOST = MIB, 4096 * MIB
QUIET_MS = 3_600_000
MEMORY = "2g"
NO_GROUP = "none"
LATER_KINDS = ("cdc", "transform")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_MEMORY = re.compile(r"\d+[kmgt]", re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class Bad(Enum):
    """The policy for records that cannot be decoded, or that are lost."""

    FAIL = "fail"
    SKIP = "skip"
    DLQ = "dlq"


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy, and the topic to which it reports."""

    what: Bad
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The cluster to read. `kafka` has the settings of Kafka's clients, such as security.protocol."""

    bootstrap: str
    kafka: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SparkPlan:
    """The settings of Spark."""

    master: str
    checkpoints: Path
    memory: str
    conf: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class From:
    """A topic, and where to start in it if there is no checkpoint."""

    topic: str
    start: str
    """`earliest`, `latest`, or a timestamp in milliseconds."""
    has_headers: bool
    group: str | None
    """The consumer group to which the pipeline commits its progress."""


@dataclass(frozen=True, slots=True)
class Decode:
    """The encoding of keys and values. A schema is in Spark's DDL, such as `id BIGINT, amount DOUBLE`."""

    key: str = "none"
    value: str = "none"
    schema: str | None = None

    @property
    def can_fail(self) -> bool:
        """Whether there can be bad records."""
        return (self.key, self.value) != ("none", "none")


@dataclass(frozen=True, slots=True)
class Compact:
    """Whether small files are joined, and how old they must be."""

    is_on: bool
    quiet_ms: int


@dataclass(frozen=True, slots=True)
class ToDelta:
    """The target table."""

    uri: str
    is_by_day: bool
    file_bytes: int
    compact: Compact


@dataclass(frozen=True, slots=True)
class Lake:
    """Writes a topic to a table, each record once."""

    name: str
    source: From
    decode: Decode
    target: ToDelta
    trigger_ms: int
    batch_bytes_max: int
    on_bad_record: Policy
    on_gap: Policy


@dataclass(frozen=True, slots=True)
class Audit:
    """Compares a lake's table with its topic."""

    name: str
    of: str
    uri: str
    trigger_ms: int


Pipeline = Lake | Audit


@dataclass(frozen=True, slots=True)
class Project:
    """The whole file."""

    path: Path
    cluster: ClusterPlan
    spark: SparkPlan
    pipelines: Mapping[str, Pipeline]

    def pipeline(self, name: str) -> Pipeline:
        """The pipeline of this name."""
        if name not in self.pipelines:
            raise ProjectError(f"{self.path} has no pipeline {name}: {nearest(name, list(self.pipelines))}")
        return self.pipelines[name]

    def lake(self, name: str) -> Lake:
        """The lake of this name."""
        found = self.pipeline(name)
        if not isinstance(found, Lake):
            raise ProjectError(f"{name} is no lake.")
        return found

    def checkpoint(self, name: str) -> Path:
        """The checkpoint directory of a pipeline."""
        return self.spark.checkpoints / name


def read_project(path: Path = FILE) -> Project:
    """Reads the file, or raises its first error."""
    return project_of(read_yaml(path), path)


def project_of(found: object, path: Path) -> Project:
    """Builds a project from parsed YAML."""
    whole = Section(found, str(path), ("version", "cluster", "spark", "pipelines"))
    if (version := whole.text("version", VERSION)) != VERSION:
        raise ProjectError(f"{path} is of version {version}, and this is for version {VERSION}: upgrade penstock.")
    home = path.absolute().parent
    pipelines = {name: _pipeline(name, below, home) for name, below in whole.named("pipelines")}
    if not pipelines:
        raise ProjectError(f"{path} has no pipelines: `penstock spark init` shows one.")
    project = Project(path, _cluster(whole, home), _spark(whole, home), pipelines)
    for each in pipelines.values():
        if isinstance(each, Audit):
            project.lake(each.of)
    _check_targets(pipelines)
    return project


# --- cluster and Spark


def _cluster(whole: Section, home: Path) -> ClusterPlan:
    section = whole.section("cluster", ("bootstrap", "kafka", "cold_tier"))
    if "cold_tier" in section:
        raise ProjectError(f"{section.path('cold_tier')} is not built yet: leave it out.")
    kafka = {name.removeprefix("kafka."): value for name, value in section.pairs("kafka").items()}
    bootstrap = ",".join(section.texts("bootstrap"))
    try:
        if not bootstrap:
            found = find_cluster(directory=home)
            bootstrap, kafka = found.bootstrap, {**found.properties, **kafka}
        parse_addresses(bootstrap)
    except ValueError as error:
        raise ProjectError(f"{section.path('bootstrap')}: {error}.") from None
    return ClusterPlan(bootstrap, kafka)


def _spark(whole: Section, home: Path) -> SparkPlan:
    section = whole.section("spark", ("master", "checkpoints", "memory", "conf"))
    checkpoints = section.text("checkpoints", ".penstock/checkpoints")
    if _SCHEME.match(checkpoints):
        if not checkpoints.startswith("file://"):
            raise ProjectError(
                f"{section.path('checkpoints')} must be a directory of the driver: on a disk, a volume or NFS."
            )
        checkpoints = checkpoints.removeprefix("file://")
    memory = section.text("memory", MEMORY)
    if not _MEMORY.fullmatch(memory):
        raise ProjectError(f"{section.path('memory')} is written as Java does, such as 4g or 512m, not {memory}.")
    return SparkPlan(section.text("master", "local[*]"), home / checkpoints, memory, section.pairs("conf"))


# --- pipelines


def _pipeline(name: str, below: object, home: Path) -> Pipeline:
    if not _NAME.fullmatch(name):
        raise ProjectError(f"pipelines.{name}: a name begins with a letter and goes on with letters, digits, - and _.")
    kind = below.get("kind") if isinstance(below, dict) else None
    if kind is None:
        raise ProjectError(f"pipelines.{name} lacks kind: lake or audit.")
    match kind:
        case "lake":
            return _lake(name, below, home)
        case "audit":
            return _audit(name, below, home)
    if kind in LATER_KINDS:
        raise ProjectError(f"pipelines.{name}.kind: {kind} is not built yet; lake and audit are.")
    raise ProjectError(f"pipelines.{name}.kind cannot be {kind}: {nearest(str(kind), ('lake', 'audit'))}")


def _lake(name: str, below: object, home: Path) -> Lake:
    known = ("kind", "from", "decode", "to", "trigger", "max_batch", "on_bad_record", "on_gap")
    section = Section(below, f"pipelines.{name}", known)
    source = _from(name, section)
    decode = _decode(section)
    on_bad_record = _policy(section, "on_bad_record")
    on_gap = _policy(section, "on_gap")
    for policy, key in ((on_bad_record, "on_bad_record"), (on_gap, "on_gap")):
        if policy.topic == source.topic:
            raise ProjectError(f"{section.path(key)}: records of {source.topic} would go round in a circle.")
    return Lake(
        name,
        source,
        decode,
        _to_delta(section, home),
        section.parsed("trigger", parse_time_ms, TRIGGER_MS),
        _positive(section, "max_batch", BATCH_BYTES_MAX),
        on_bad_record,
        on_gap,
    )


def _audit(name: str, below: object, home: Path) -> Audit:
    section = Section(below, f"pipelines.{name}", ("kind", "of", "to", "trigger"))
    to = section.section("to", ("delta",))
    return Audit(name, section.text("of"), _uri(to, home), section.parsed("trigger", parse_time_ms, 3_600_000))


def _from(name: str, section: Section) -> From:
    source = section.section("from", ("topic", "start", "headers", "group"))
    start = source.parsed("start", _start, "earliest")
    group = source.text("group", name)
    return From(
        _topic(source, "topic"), start, source.truth("headers", otherwise=True), None if group == NO_GROUP else group
    )


def _start(text: str) -> str:
    if text in ("earliest", "latest"):
        return text
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"expected earliest, latest, or a moment such as 2026-01-31T12:00:00Z, not {text}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return str(int(moment.timestamp() * 1000))


def _decode(section: Section) -> Decode:
    decode = section.section("decode", ("key", "value", "schema"))
    for name in ("key", "value"):
        if name in decode and decode.text(name) == "registry":
            raise ProjectError(f"{decode.path(name)}: registry is not built yet; none, text and json are.")
    key = decode.one_of("key", ("none", "text"), "none")
    value = decode.one_of("value", ("none", "text", "json"), "none")
    schema = decode.text("schema") if "schema" in decode else None
    if schema is not None and value != "json":
        raise ProjectError(f"{decode.path('schema')} goes with value: json.")
    return Decode(key, value, schema)


def _to_delta(section: Section, home: Path) -> ToDelta:
    to = section.section("to", ("delta", "partition_by", "file_size", "compact"))
    by = to.texts("partition_by", ("day",))
    if by not in ((), ("day",)):
        raise ProjectError(f"{to.path('partition_by')} is [day], or [] for none, not {list(by)}.")
    file_bytes = to.parsed("file_size", parse_size_bytes, FILE_BYTES)
    if not FILE_BYTES_LEAST <= file_bytes <= FILE_BYTES_MOST:
        raise ProjectError(f"{to.path('file_size')} lies between 1 MB and 4 GB; 256 MB to 1 GB read best.")
    return ToDelta(_uri(to, home), bool(by), file_bytes, _compact(to))


def _compact(to: Section) -> Compact:
    if isinstance(to.raw("compact"), dict):
        compact = to.section("compact", ("after",))
        return Compact(True, compact.parsed("after", parse_time_ms, QUIET_MS))
    return Compact(to.truth("compact", otherwise=True), QUIET_MS)


def _policy(section: Section, name: str) -> Policy:
    if isinstance(section.raw(name), dict):
        return Policy(Bad.DLQ, _topic(section.section(name, ("dlq",)), "dlq"))
    what = section.one_of(name, [each.value for each in Bad], "fail")
    if what == "dlq":
        raise ProjectError(
            f"{section.path(name)} must name the topic: {{dlq: {section.where.rpartition('.')[2]}.dlq}}."
        )
    return Policy(Bad(what))


def _topic(section: Section, name: str) -> str:
    topic = section.text(name)
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ProjectError(f"{section.path(name)}: {topic!r} cannot be the name of a topic.")
    return topic


def _uri(to: Section, home: Path) -> str:
    text = to.text("delta")
    return text if _SCHEME.match(text) else str((home / text).resolve())


def _positive(section: Section, name: str, otherwise: int) -> int:
    found = section.parsed(name, parse_size_bytes, otherwise)
    if found <= 0:
        raise ProjectError(f"{section.path(name)} must be more than nothing.")
    return found


def _check_targets(pipelines: Mapping[str, Pipeline]) -> None:
    taken: dict[str, str] = {}
    for each in pipelines.values():
        uri = each.target.uri if isinstance(each, Lake) else each.uri
        if uri in taken:
            raise ProjectError(f"{taken[uri]} and {each.name} write to the same table, {uri}: give each its own.")
        taken[uri] = each.name
