import pytest

from penstock.log.settings import DEFAULT_SETTINGS, Durability
from penstock.metadata.settings.broker import BROKER_SETTINGS
from penstock.metadata.settings.checks import UnchangeableSetting, check_dynamic_broker, validate
from penstock.metadata.settings.describe import describe_broker, describe_cluster, describe_topic
from penstock.metadata.settings.group import GROUP_SETTINGS
from penstock.metadata.settings.layers import BrokerSettings, parse_broker_settings
from penstock.metadata.settings.setting import InvalidSetting, Kind, Setting, Source, Update, show
from penstock.metadata.settings.topic import TOPIC_SETTINGS
from penstock.metadata.settings.typed import parse_topic_settings
from penstock.records.check import DEFAULT_RULES, Validation
from penstock.records.header import TimestampType

EVERY = [*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values(), *GROUP_SETTINGS.values()]


@pytest.mark.parametrize("setting", EVERY, ids=lambda setting: setting.name)
def test_every_setting_is_documented_and_takes_its_own_default(setting: Setting) -> None:
    assert setting.documentation.endswith(".")
    assert show(setting.parse(setting.default)) == setting.default
    assert all(synonym.name in BROKER_SETTINGS for synonym in setting.synonyms)


def test_a_topic_without_settings_is_what_log_and_checks_take_by_default() -> None:
    settings = parse_topic_settings({}, BrokerSettings())
    assert settings.log == DEFAULT_SETTINGS
    assert settings.rules == DEFAULT_RULES
    assert settings.min_insync_replicas == 1
    assert settings.compression == "producer"


def test_the_settings_of_a_topic_reach_its_logs() -> None:
    overrides = {
        "durability": "replicated",
        "segment.bytes": "2000000",
        "segment.ms": "7",
        "index.interval.bytes": "100",
        "retention.ms": "-1",
        "retention.bytes": "12345",
    }
    log = parse_topic_settings(overrides, BrokerSettings({"producer.id.expiration.ms": "9"})).log
    assert log.durability is Durability.REPLICATED
    assert (log.segment_bytes, log.segment_ms, log.index_interval_bytes) == (2_000_000, 7, 100)
    assert (log.retention_ms, log.retention_bytes, log.producer_expiration_ms) == (None, 12345, 9)


@pytest.mark.parametrize(
    ("policy", "is_limited"), [("delete", True), ("compact,delete", True), ("compact", False), ("", False)]
)
def test_only_deletion_drops_old_segments(policy: str, is_limited: bool) -> None:
    settings = parse_topic_settings({"cleanup.policy": policy, "retention.bytes": "5"}, BrokerSettings())
    assert (settings.log.retention_ms is not None) is is_limited
    assert (settings.log.retention_bytes is not None) is is_limited
    assert settings.rules.is_compacted is settings.is_compacted is ("compact" in policy)


def test_the_settings_of_a_topic_reach_the_checks_of_its_batches() -> None:
    overrides = {
        "record.validation": "full",
        "max.message.bytes": "1000",
        "message.timestamp.type": "LogAppendTime",
        "message.timestamp.before.max.ms": "5",
        "message.timestamp.after.max.ms": "9223372036854775807",
    }
    rules = parse_topic_settings(overrides, BrokerSettings()).rules
    assert (rules.validation, rules.batch_bytes_max) == (Validation.FULL, 1000)
    assert rules.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (rules.timestamp_before_ms_max, rules.timestamp_after_ms_max) == (5, None)


def test_segments_may_be_tiny_for_tests() -> None:
    assert parse_topic_settings({"internal.segment.bytes": "100"}, BrokerSettings()).log.segment_bytes == 100


def retention(broker: BrokerSettings) -> tuple[object, Source]:
    return broker.topic_defaults["retention.ms"]


def test_the_strongest_layer_wins_and_in_it_the_finest_unit() -> None:
    hour = 3_600_000
    assert retention(BrokerSettings()) == (168 * hour, Source.DEFAULT)
    file = {"log.retention.hours": "1"}
    assert retention(BrokerSettings(file)) == (hour, Source.STATIC_BROKER)
    file["log.retention.minutes"] = "2"
    assert retention(BrokerSettings(file)) == (120_000, Source.STATIC_BROKER)
    file["log.retention.ms"] = "3"
    assert retention(BrokerSettings(file)) == (3, Source.STATIC_BROKER)
    assert retention(BrokerSettings(file, {"log.retention.ms": "4"})) == (4, Source.DYNAMIC_DEFAULT_BROKER)
    both = BrokerSettings(file, {"log.retention.ms": "4"}, {"log.retention.ms": "5"})
    assert retention(both) == (5, Source.DYNAMIC_BROKER)
    assert retention(BrokerSettings({"log.retention.hours": "-1"})) == (-1, Source.STATIC_BROKER)


def test_a_text_of_the_future_is_passed_over() -> None:
    odd = BrokerSettings({}, {"log.retention.ms": "by-moonlight", "message.max.bytes": "lots"})
    assert retention(odd) == (604_800_000, Source.DEFAULT)
    assert odd.number("message.max.bytes") == 1_048_588


def test_all_complaints_about_a_file_come_at_once() -> None:
    with pytest.raises(InvalidSetting) as refused:
        parse_broker_settings({"num.partitions": "0", "log.retention.hour": "5", "node.id": "x", "my.plugin": "y"})
    assert str(refused.value).splitlines() == [
        "Invalid value 0 for configuration num.partitions: Value must be at least 1",
        "Unknown broker config name: log.retention.hour; did you mean log.retention.hours?",
        "Invalid value x for configuration node.id: Not a number of type INT",
    ]
    assert parse_broker_settings({"node.id": "7", "my.plugin": "y"}).number("node.id") == 7


def test_one_value_at_a_time() -> None:
    assert validate("retention.ms", "5") == 5
    with pytest.raises(InvalidSetting, match=r"Unknown topic config name: bogus$"):
        validate("bogus", "5")
    with pytest.raises(InvalidSetting, match=r"did you mean min\.insync\.replicas\?"):
        validate("min.isync.replicas", "5")


def test_a_topic_may_move_to_remote_storage_only_where_there_is_one() -> None:
    remote = BrokerSettings({"remote.log.storage.system.enable": "true"})
    wanted = {"remote.storage.enable": "true"}
    with pytest.raises(InvalidSetting, match="disabled in the broker"):
        parse_topic_settings(wanted, BrokerSettings())
    parse_topic_settings(wanted, remote)
    for more, words in (
        ({"cleanup.policy": "compact"}, "unsupported for the compacted"),
        ({"retention.ms": "5", "local.retention.ms": "6"}, "not be more than"),
        ({"retention.bytes": "5", "local.retention.bytes": "-1"}, "not be -1"),
    ):
        with pytest.raises(InvalidSetting, match=words):
            parse_topic_settings({**wanted, **more}, remote)


def test_secrets_are_not_told() -> None:
    broker = BrokerSettings({"ssl.keystore.password": "open sesame"}, {"my.plugin": "open sesame"})
    rows = {row.name: row for row in (*describe_broker(broker), *describe_cluster(broker))}
    assert "sesame" not in str(rows)
    assert rows["ssl.keystore.password"].is_sensitive
    assert not rows["ssl.keystore.password"].is_default
    assert rows["my.plugin"].kind is None


def test_only_what_is_asked_for_is_told() -> None:
    assert [row.name for row in describe_topic({}, BrokerSettings(), ["retention.ms", "bogus"])] == ["retention.ms"]
    assert len(describe_topic({}, BrokerSettings(), [])) == len(TOPIC_SETTINGS) - 1
    assert not describe_cluster(BrokerSettings())


def test_a_listener_may_have_settings_of_its_own() -> None:
    check_dynamic_broker({"listener.name.inside.ssl.keystore.password": "x"}, is_per_broker=True)
    with pytest.raises(UnchangeableSetting, match="broker id must be specified"):
        check_dynamic_broker({"listener.name.inside.ssl.keystore.password": "x"}, is_per_broker=False)
    with pytest.raises(UnchangeableSetting, match="using the listener prefix"):
        check_dynamic_broker({"ssl.keystore.password": "x"}, is_per_broker=True)


def test_what_a_broker_may_change_is_known_by_name() -> None:
    assert BROKER_SETTINGS["log.retention.ms"].update is Update.CLUSTER_WIDE
    assert BROKER_SETTINGS["listeners"].update is Update.PER_BROKER
    assert BROKER_SETTINGS["node.id"].update is Update.READ_ONLY


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1e7, "1.0E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (0.00012, "1.2E-4"),
        (123456.75, "123456.75"),
        (float("inf"), "Infinity"),
        (True, "true"),
        ((), ""),
        (("a", "b"), "a,b"),
        (None, None),
    ],
)
def test_values_are_shown_as_java_shows_them(value: object, text: str | None) -> None:
    assert show(value) == text  # type: ignore[arg-type]


def test_numbers_that_never_end_do_not_take_for_ever() -> None:
    with pytest.raises(InvalidSetting):
        Setting("x", Kind.LONG, None, "X.").parse("9" * 100_000)
