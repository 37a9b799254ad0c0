"""Checks of a pipeline against its cluster: schema, settings, login, topics, and whether records can be decoded."""

import difflib
from collections.abc import Iterator, Mapping, Sequence

from penstock.client.blocking import SyncClient
from penstock.client.errors import ClientError, LoginFailed, NotTrusted, Refused
from penstock.model.findings import Finding, well, wrong
from penstock.spark.options import check_kafka
from penstock.spark.project.connecting import connect, within
from penstock.spark.project.plan import Bad, ClusterPlan, Lake, Project
from penstock.spark.project.sections import ProjectError
from penstock.spark.security import read_security, tls_context

TIMEOUT_MS = 3_000
"""How long a broker that refuses connections is tried."""
LIMIT_S = 10.0
"""How long a broker may take to answer."""
RECORDS_MAX = 100


def schema_finding(lake: Lake) -> Finding:
    """Checks that the schema is one, and can be read from JSON."""
    from penstock.spark.schemas.ddl import fields_of

    try:
        fields = fields_of(lake.decode.schema)
    except ProjectError as error:
        return wrong("schema", f"{lake.name}: {str(error).rstrip('.')}", f"correct decode.schema of {lake.name}")
    if fields is None:
        return well("schema", f"{lake.name} has none: its values stay {_kept(lake)}")
    return well("schema", f"{lake.name} decodes {', '.join(fields.names)}")


def cluster_findings(project: Project, lakes: Sequence[Lake], *, reads_records: bool = False) -> Iterator[Finding]:
    """Checks settings, login and topics; stops at a problem that hides all others."""
    cluster = project.cluster
    settings = settings_finding(cluster)
    if settings is not None:
        yield settings
        return
    try:
        with connect(cluster, timeout_ms=TIMEOUT_MS, connect_timeout_ms=TIMEOUT_MS) as client:
            topics = client.run(within(LIMIT_S, client.admin.list_topics()))
            yield well("cluster", f"{cluster.bootstrap} answers")
            yield well("login", _login(cluster))
            partitions = {each.name: len(each.partitions) for each in topics}
            for lake in lakes:
                yield from topic_findings(lake, partitions)
                if reads_records and lake.source.topic in partitions:
                    yield records_finding(lake, client)
    except LoginFailed as error:
        yield wrong("login", _text(error), "correct sasl.mechanism and sasl.jaas.config in cluster.kafka of the file")
    except NotTrusted as error:
        fix = "correct security.protocol and ssl.truststore.location in cluster.kafka of the file"
        yield wrong("login", _text(error), fix)
    except ClientError as error:
        yield wrong("cluster", _text(error), "start one with `penstock dev`, or correct cluster in the file")


def settings_finding(cluster: ClusterPlan) -> Finding | None:
    """Checks the settings of Kafka's clients, and the files that they name; None if they can be used."""
    try:
        check_kafka(cluster.kafka)
        if read_security(cluster.kafka).is_encrypted:
            tls_context(cluster.kafka)
    except (ValueError, OSError) as error:
        return wrong("login", _text(error), "correct cluster.kafka in the file")
    return None


def topic_findings(lake: Lake, partitions: Mapping[str, int]) -> Iterator[Finding]:
    """Checks the topic to read, and the dead letter topics."""
    topic = lake.source.topic
    if topic in partitions:
        yield well("topic", f"{lake.name} reads {topic}, which has {partitions[topic]} partitions")
    else:
        close = difflib.get_close_matches(topic, partitions, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        yield wrong("topic", f"{lake.name} reads {topic}, which is not there{hint}", f"penstock topic create {topic}")
    for policy in (lake.on_bad_record, lake.on_gap):
        if policy.topic is not None:
            is_there = policy.topic in partitions
            yield well("topic", f"{policy.topic} {'is there' if is_there else 'will be made'}")


def records_finding(lake: Lake, client: SyncClient) -> Finding:
    """Decodes the first records of the topic, as the pipeline would."""
    from penstock.spark.schemas.ddl import fields_of
    from penstock.spark.schemas.inference import sample_of

    topic = lake.source.topic
    try:
        fields = fields_of(lake.decode.schema)
        records = sample_of(client, topic, RECORDS_MAX)
    except Refused as error:
        return wrong("records", f"{topic} cannot be read: {_text(error)}", f"allow this login to read {topic}")
    except ProjectError:
        return well("records", f"not read, because the schema of {lake.name} is wrong")
    if not records:
        return well("records", f"{topic} has none yet")
    import pyarrow as pa

    from penstock.spark.lake.decoding import Decoder

    rows = [{**each._asdict(), "timestamp": each.timestamp_ms * 1000} for each in records]
    batch = pa.RecordBatch.from_pylist(rows, pa.schema(_COLUMNS))
    _, bad = Decoder(lake.decode.key, lake.decode.value, fields).decode(batch)
    if not bad:
        return well("records", f"all of the first {len(records)} of {topic} can be decoded")
    first = f"{bad[0].reason} (partition {bad[0].partition}, offset {bad[0].offset})"
    if len(bad) == len(records):
        fix = f"correct decode of {lake.name}; `penstock spark init -t {topic}` prints a schema that fits"
        return wrong("records", f"none of the first {len(records)} of {topic} can be decoded: {first}", fix)
    if lake.on_bad_record.what is Bad.FAIL:
        fix = f"set on_bad_record of {lake.name} to {{dlq: {topic}.dlq}} or skip, or correct decode"
        found = f"{len(bad)} of the first {len(records)} of {topic} cannot be decoded, which stops {lake.name}"
        return wrong("records", f"{found}: {first}", fix)
    return well("records", f"{len(bad)} of the first {len(records)} of {topic} are bad: {first}")


_COLUMNS = [
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int32"),
    ("offset", "int64"),
    ("timestamp", "int64"),
]


def _kept(lake: Lake) -> str:
    return "bytes" if lake.decode.value == "none" else "text"


def _login(cluster: ClusterPlan) -> str:
    security = read_security(cluster.kafka)
    encrypted = "encrypted" if security.is_encrypted else "not encrypted"
    if security.credentials is None:
        return f"none, {encrypted}"
    return f"{security.credentials.username} by {security.credentials.mechanism}, {encrypted}"


def _text(error: Exception) -> str:
    return str(error).rstrip(".")
