"""Files with settings: how they are read, and what is wrong with them."""

import json
from pathlib import Path

import pytest

from penstock.cli.failing import Failed
from penstock.cli.plan import plan_of
from penstock.cli.settings_file import from_environment, parse_properties, read_settings
from tests.unit.cli.conftest import Penstock

GOOD = """# a broker
node.id=3
process.roles : broker,controller
listeners=INSIDE://localhost:9092,\\
    CONTROLLER://localhost:9093
listener.security.protocol.map=INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs=/data/penstock
"""


def test_properties_are_read_as_java_reads_them() -> None:
    text = "a=1\n  b : 2\nc 3\n! no\n# no\nd=x\\\n   y\ne\\:f=g\\=h\\u0041\nempty=\n"
    assert dict(parse_properties(text)) == {"a": "1", "b": "2", "c": "3", "d": "xy", "e:f": "g=hA", "empty": ""}


def test_toml_tables_are_parts_of_names(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text('"node.id" = 1\n[log]\ndirs = ["a", "b"]\nretention.ms = 5\n[auto]\ncreate.topics.enable = false\n')
    expected = {"node.id": "1", "log.dirs": "a,b", "log.retention.ms": "5", "auto.create.topics.enable": "false"}
    assert read_settings(path) == expected


def test_variables_become_names_and_the_stronger_prefix_wins() -> None:
    found = from_environment(
        {
            "PENSTOCK_NUM_PARTITIONS": "3",
            "KAFKA_NUM_PARTITIONS": "1",
            "KAFKA_CFG_LOG_DIRS": "/data",
            "KAFKA_A__B___C": "x",
            "KAFKA_HEAP_OPTS": "-Xmx1G",
            "PENSTOCK_BOOTSTRAP": "elsewhere:9092",
            "HOME": "/",
        }
    )
    assert found == {"num.partitions": "3", "log.dirs": "/data", "a_b-c": "x"}


def test_a_good_file_passes(penstock: Penstock) -> None:
    Path("server.properties").write_text(GOOD)
    result = penstock("config", "check", "server.properties")
    assert (result.code, result.out) == (0, "server.properties: 6 settings, no complaints.\n")


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("log.retension.ms=5", "did you mean log.retention.ms?"),
        ("num.partitions=many", "num.partitions"),
        ("min.insync.replicas=3\ndefault.replication.factor=2", "min.insync.replicas (3) is more than"),
        ("log.retention.ms=5\nlog.retention.hours=1", "only log.retention.ms counts"),
        ("broker.id=9", "broker.id and node.id differ"),
        ("zookeeper.connect=zk:2181", "no ZooKeeper"),
        ("advertised.listeners=OUTSIDE://box:9092", "which protocol listener OUTSIDE speaks"),
        ("advertised.listeners=INSIDE://0.0.0.0:9092", "name one that they reach"),
        ("advertised.listeners=SSL://box:9092", "which listeners does not"),
        ("listeners=INSIDE://:9092,CONTROLLER://:9092", "two listeners share *:9092"),
        ("listeners=INSIDE://:9092", "controller.listener.names has CONTROLLER"),
        ("listeners=localhost:9092", "is no listener"),
        ("inter.broker.listener.name=SSL", "none of the listeners"),
        ("process.roles=broker", "set controller.quorum.voters"),
    ],
)
def test_what_is_wrong_is_named(penstock: Penstock, line: str, part: str) -> None:
    Path("server.properties").write_text(GOOD + line + "\n")
    result = penstock("config", "check", "server.properties")
    assert result.code == 1
    assert part in result.out


def test_complaints_for_programs(penstock: Penstock) -> None:
    Path("server.properties").write_text("zookeeper.connect=zk\n")
    result = penstock("config", "check", "server.properties", "-o", "json")
    assert result.code == 1
    assert "ZooKeeper" in json.loads(result.out)[0]["complaint"]


def test_a_file_that_is_not_there(penstock: Penstock) -> None:
    result = penstock("config", "check", "nowhere.properties")
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        "penstock: cannot read nowhere.properties: No such file or directory; check the path and its permissions.\n"
    )


def test_a_server_does_not_start_by_a_wrong_file(penstock: Penstock) -> None:
    Path("server.properties").write_text("log.retension.ms=5\n")
    result = penstock("server", "--config", "server.properties")
    assert result.code == 1
    assert "did you mean log.retention.ms?" in result.err


def test_a_plan_follows_the_file() -> None:
    plan = plan_of(dict(parse_properties(GOOD)), allows_plaintext=False, is_verbose=False)
    assert (plan.node_id, plan.host, plan.port, str(plan.data_path)) == (3, "localhost", 9092, "/data/penstock")
    assert plan.static["process.roles"] == "broker,controller"


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"listeners": "SSL://:9092"}, "not served yet"),
        ({"listeners": "PLAINTEXT://:9092,SSL://:9093"}, "keep one"),
        ({"log.dirs": "a,b"}, "a node has one"),
    ],
)
def test_what_a_node_cannot_do_yet_is_said(settings: dict[str, str], part: str) -> None:
    with pytest.raises(Failed, match=part):
        plan_of(settings, allows_plaintext=False, is_verbose=False)
