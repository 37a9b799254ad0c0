"""Options are accepted and refused as by the Kafka connector, and every refusal names the fix."""

import logging
from typing import Any

import pytest

from penstock.client.metadata import TopicPartition
from penstock.client.offsets import Isolation
from penstock.spark.options import (
    COLUMNS,
    Assigned,
    AtOffsets,
    Matching,
    Named,
    OnGap,
    OptionError,
    Since,
    SinceEach,
    SourceOptions,
    batch_options,
    check_options,
    stream_options,
)

SERVER = {"kafka.bootstrap.servers": "one:9092,two"}
BASIC = {**SERVER, "subscribe": "orders"}


def batch(**options: str) -> SourceOptions:
    return batch_options(_lower({**BASIC, **options}))


def stream(**options: str) -> SourceOptions:
    return stream_options(_lower({**BASIC, **options}))


def _lower(options: dict[str, str]) -> dict[str, str]:
    """Lower-cases the names, as Spark does."""
    return {name.lower(): value for name, value in options.items()}


def test_what_nobody_says() -> None:
    found = batch()
    assert (found.start, found.end, stream().start) == ("earliest", "latest", "latest")
    assert found.subscription == Named(("orders",))
    assert found.columns == COLUMNS
    assert found.on_gap is OnGap.FAIL
    assert found.isolation is Isolation.READ_UNCOMMITTED
    assert (found.task_bytes, found.tasks_min, found.offsets_max) == (128 << 20, None, None)
    assert found.delay_ms_max == 15 * 60_000
    assert not found.is_pushdown_on
    assert found.commit_group is None


def test_all_that_the_connector_takes() -> None:
    found = stream(
        startingOffsets=' {"orders": {"0": 23, "1": -1, "2": -2}} ',
        failOnDataLoss="false",
        includeHeaders="TRUE",
        maxOffsetsPerTrigger="1000",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="30s",
        minPartitions="7",
        maxRecordsPerPartition="500",
        groupIdPrefix="team",
        **{
            "kafkaConsumer.pollTimeoutMs": "5000",
            "fetchOffset.numRetries": "5",
            "fetchOffset.retryIntervalMs": "0",
            "kafka.isolation.level": "read_committed",
            "kafka.session.timeout.ms": "1",
        },
    )
    assert found.start == AtOffsets(
        {TopicPartition("orders", 0): 23, TopicPartition("orders", 1): -1, TopicPartition("orders", 2): -2}
    )
    assert (found.on_gap, found.has_headers) == (OnGap.SKIP, True)
    assert (found.offsets_max, found.offsets_min, found.delay_ms_max) == (1000, 10, 30_000)
    assert (found.tasks_min, found.task_offsets_max, found.client_id) == (7, 500, "team")
    assert (found.poll_timeout_ms, found.fetch_attempts, found.fetch_pause_ms) == (5000, 5, 0)
    assert found.isolation is Isolation.READ_COMMITTED
    assert found.kafka["session.timeout.ms"] == "1"


def test_a_protocol_before_an_address_is_passed_over() -> None:
    assert batch(**{"kafka.bootstrap.servers": "SSL://one:1,SSL://two:2"}).bootstrap == "one:1,two:2"


def test_a_number_of_the_client_that_is_none_is_told_early() -> None:
    with pytest.raises(OptionError, match=r"kafka\.fetch\.max\.bytes is a whole number from 0 on, not lots"):
        check_options(_lower({**BASIC, "kafka.fetch.max.bytes": "lots"}))
    assert batch(**{"kafka.fetch.max.bytes": "5"}).kafka_number("fetch.max.bytes", 7) == 5
    assert batch().kafka_number("fetch.max.bytes", 7) == 7


def test_the_latest_of_each_key_is_a_batch_of_all_records() -> None:
    assert batch(view="latest").is_latest
    assert not batch().is_latest
    with pytest.raises(OptionError, match=r"read it as a batch, with spark\.read"):
        stream(view="latest")
    with pytest.raises(OptionError, match="leave out pushdown"):
        batch(view="latest", pushdown="true")


def test_a_setting_of_the_java_client_that_does_nothing_here_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {**BASIC, "kafka.max.poll.records": "5", "kafka.ssl.truststore.location": "/trust.jks"}
    check_options(given)
    batch_options(given)
    told = [record.getMessage() for record in caplog.records if record.name == "penstock.spark"]
    assert told == ["kafka.max.poll.records means nothing to the penstock source and is ignored"]


def test_passwords_are_not_shown_with_the_options() -> None:
    assert "secret" not in repr(batch(**{"kafka.ssl.truststore.password": "secret"}))


def test_a_group_is_a_name_and_goes_before_a_prefix() -> None:
    assert stream(groupIdPrefix="team", **{"kafka.group.id": "readers"}).client_id == "readers"


def test_three_ways_to_say_what_to_read() -> None:
    assert batch_options({**SERVER, "subscribe": " a, b ,,a"}).subscription == Named(("a", "b"))
    assert batch_options({**SERVER, "subscribepattern": "^or.*s$"}).subscription == Matching("^or.*s$")
    assert batch_options({**SERVER, "assign": '{"a": [1, 0]}'}).subscription == Assigned(
        (TopicPartition("a", 0), TopicPartition("a", 1))
    )


def test_one_moment_goes_before_a_moment_each_and_that_before_offsets() -> None:
    each = '{"orders": {"0": 1700000000000}}'
    assert batch(startingOffsets="earliest", startingOffsetsByTimestamp=each).start == SinceEach(
        {TopicPartition("orders", 0): 1_700_000_000_000}
    )
    assert batch(startingTimestamp="5", startingOffsetsByTimestamp=each).start == Since(5)
    assert batch(endingTimestamp="6").end == Since(6)
    assert stream(startingTimestamp="5", startingOffsetsByTimestampStrategy="latest").is_late_start_allowed


def test_options_of_our_own() -> None:
    found = stream(on_gap="dlq", dlq_topic="gaps", columns="value, TIMESTAMPTYPE", pushdown="true")
    assert (found.on_gap, found.dlq_topic) == (OnGap.DLQ, "gaps")
    assert found.columns == ("value", "timestampType")
    assert found.is_pushdown_on
    assert stream(task_bytes="64m", max_bytes_per_trigger="2 GB").task_bytes == 64 << 20
    assert stream(max_bytes_per_trigger="2 GB").bytes_max == 2 << 30


def test_what_a_batch_has_no_use_for_is_only_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        batch(maxOffsetsPerTrigger="5", shoe_size="44")
    assert "maxOffsetsPerTrigger has no meaning in a batch" in caplog.text
    assert "shoe_size means nothing to the penstock source" in caplog.text


REFUSED: list[tuple[dict[str, str], str]] = [
    ({"subscribe": "a"}, "set kafka.bootstrap.servers"),
    ({"kafka.bootstrap.servers": "one:port"}, "the port is a number"),
    (SERVER, "set one of subscribe, subscribePattern and assign"),
    ({**SERVER, "topic": "a"}, "topic is where a query writes to"),
    ({**BASIC, "assign": '{"a": [0]}'}, "not subscribe and assign together"),
    ({**SERVER, "subscribe": " , "}, "names no topic"),
    ({**SERVER, "subscribepattern": "("}, "not a regular expression"),
    ({**SERVER, "subscribepattern": " "}, "subscribePattern is empty"),
    ({**SERVER, "assign": "orders"}, 'assign: expected something like {"orders": [0, 1]}'),
    ({**SERVER, "assign": "{}"}, "assign names no partition"),
    ({**BASIC, "startingoffset": "latest"}, "did you mean startingOffsets?"),
    ({**BASIC, "kafka.isolation.levl": "read_committed"}, "did you mean kafka.isolation.level?"),
    ({**BASIC, "kafka.auto.offset.reset": "earliest"}, "startingOffsets"),
    ({**BASIC, "kafka.key.deserializer": "x"}, "keys come as bytes"),
    ({**BASIC, "kafka.enable.auto.commit": "true"}, "the checkpoint keeps the offsets"),
    ({**BASIC, "kafka.isolation.level": "serializable"}, "read_uncommitted or read_committed"),
    ({**BASIC, "startingoffsets": "yesterday"}, "startingOffsets: expected something like"),
    ({**BASIC, "startingoffsets": '{"orders": {"0": -3}}'}, "-1 for the latest"),
    ({**BASIC, "startingoffsetsbytimestamp": "1"}, "startingOffsetsByTimestamp: expected something like"),
    ({**BASIC, "startingtimestamp": "today"}, "startingTimestamp is a whole number"),
    ({**BASIC, "minpartitions": "0"}, "minPartitions is a whole number from 1 on"),
    ({**BASIC, "maxoffsetspertrigger": "many"}, "maxOffsetsPerTrigger is a whole number"),
    ({**BASIC, "maxoffsetspertrigger": "1", "minoffsetspertrigger": "2"}, "no batch can be both"),
    ({**BASIC, "maxtriggerdelay": "soon"}, "30s, 15m or 1h"),
    ({**BASIC, "includeheaders": "perhaps"}, "includeHeaders is one of true, false"),
    ({**BASIC, "columns": "value,colour"}, "name some of key, value"),
    ({**BASIC, "columns": "value,value"}, "each once"),
    ({**BASIC, "task_bytes": "big"}, "a size such as"),
    ({**BASIC, "on_gap": "ignore"}, "on_gap is one of fail, skip, dlq"),
    ({**BASIC, "on_gap": "skip", "failondataloss": "true"}, "contradict each other"),
    ({**BASIC, "on_gap": "fail", "failondataloss": "false"}, "contradict each other"),
    ({**BASIC, "on_gap": "dlq"}, "dlq_topic go together"),
    ({**BASIC, "dlq_topic": "gaps"}, "dlq_topic go together"),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSED)
def test_what_cannot_be_meant_is_refused_with_a_remedy(options: dict[str, str], sentence: str) -> None:
    for read in (batch_options, stream_options):
        with pytest.raises(OptionError) as refused:
            read(options)
        assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffsets": "latest"}, "cannot start at the latest"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "cannot start at the latest"),
        ({"endingOffsets": "earliest"}, "cannot end at the earliest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "cannot end at the earliest"),
        (
            {"startingOffsets": '{"orders": {"0": 1}}', "endingOffsets": '{"orders": {"1": 2}}'},
            r"only one has orders\[0], orders\[1]",
        ),
        ({"startingOffsets": '{"o": {"0": 9}}', "endingOffsets": '{"o": {"0": 8}}'}, "starts before it ends"),
        (
            {"startingOffsetsByTimestamp": '{"o": {"0": 9}}', "endingOffsetsByTimestamp": '{"o": {"0": 8}}'},
            "endingOffsetsByTimestamp 8: a batch starts before it ends",
        ),
    ],
)
def test_a_batch_that_would_be_empty_or_upside_down(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        batch(**options)


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(OptionError, match=f"leave out {name}"):
        stream(**{name: "latest"})


def test_settings_of_the_java_client_are_not_taken_for_typing_mistakes() -> None:
    """These names are spelled much like options with a meaning here."""
    others = (
        "client.rack",
        "default.api.timeout.ms",
        "fetch.min.bytes",
        "group.instance.id",
        "max.poll.records",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "sasl.login.class",
        "session.timeout.ms",
        "security.providers",
        "ssl.keystore.type",
    )
    assert set(others) < set(stream(**{f"kafka.{name}": "1" for name in others}).kafka)
