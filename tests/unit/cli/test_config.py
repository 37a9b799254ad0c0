"""Configuration files: parsing and error messages."""

import json
from pathlib import Path

import pytest

from penstock.cli.errors import Failed
from penstock.cli.settings.settings_file import from_environment, read_settings
from penstock.cli.settings.startup import Role, plan_of
from penstock.cli.settings.validation import validate
from penstock.client.bootstrap import Address
from penstock.client.properties import parse_properties
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
        ("metrics.listener=9644", "has no port: write host:port"),
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


KAFKAS = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
"""The settings of config/server.properties of Apache Kafka 4."""


def test_kafkas_own_file_is_usable_and_what_has_no_effect_is_listed(penstock: Penstock) -> None:
    Path("server.properties").write_text(KAFKAS)
    result = penstock("config", "check", "--allow-plaintext-beyond-loopback", "server.properties", "-o", "json")
    rows = json.loads(result.out)
    assert result.code == 0, rows
    assert {row["kind"] for row in rows} == {"no effect"}
    assert {row["complaint"].split()[0] for row in rows} == {
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "socket.receive.buffer.bytes",
        "socket.request.max.bytes",
        "socket.send.buffer.bytes",
    }
    result = penstock("config", "check", "--allow-plaintext-beyond-loopback", "server.properties")
    last = result.out.splitlines()[-1]
    assert last == "server.properties: 24 settings, 6 without effect: `penstock server` starts with them."


def test_a_check_refuses_what_the_server_refuses(penstock: Penstock) -> None:
    Path("server.properties").write_text(KAFKAS)
    result = penstock("config", "check", "server.properties")
    assert result.code == 1
    assert (
        "refusal    The listener PLAINTEXT at *:9092 is plaintext and can be reached from other machines" in result.out
    )
    assert "`penstock server` does not start with them" in result.out
    for settings, part in (("log.dirs=a,b\n", "a node has one"), ("listeners=SSL://localhost:9092\n", "not served")):
        Path("server.properties").write_text(settings)
        result = penstock("config", "check", "server.properties")
        assert (result.code, part in result.out, result.out.count("refusal ")) == (1, True, 1)
        assert part in penstock("server", "-c", "server.properties").err


def doctor_says(penstock: Penstock, *options: str) -> list[tuple[bool, str]]:
    """What `penstock doctor` finds about the file."""
    found = json.loads(penstock("doctor", "--offline", "-c", "server.properties", "-o", "json", *options).out)
    return [(each["is_well"], each["found"]) for each in found if each["check"] == "config"]


def test_doctor_check_and_server_agree_on_addresses(penstock: Penstock) -> None:
    Path("server.properties").write_text("listeners=PLAINTEXT://0.0.0.0:9092\n")
    ((is_well, found),) = doctor_says(penstock)
    assert (is_well, "can be reached from other machines" in found) == (False, True)
    assert found in penstock("config", "check", "server.properties").out
    assert found in penstock("server", "-c", "server.properties").err
    ((is_well, found),) = doctor_says(penstock, "--allow-plaintext-beyond-loopback")
    assert (is_well, "a broker starts with them" in found) == (True, True)


def test_doctor_lists_settings_without_effect(penstock: Penstock) -> None:
    Path("server.properties").write_text(GOOD + "num.io.threads=4\nmy.plugin=y\n")
    _, (is_well, found) = doctor_says(penstock)
    assert is_well
    assert found.startswith("2 of them have no effect, or not all of it: my.plugin (")


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "access control"),
        ("super.users=User:admin", "everybody is one"),
        ("sasl.enabled.mechanisms=PLAIN", "logins"),
        ("listener.name.inside.plain.sasl.jaas.config=hush;", "logins"),
        ("ssl.keystore.password=hush", "TLS"),
        ("security.inter.broker.protocol=SASL_SSL", "security.inter.broker.protocol is not PLAINTEXT"),
        ("listener.security.protocol.map=INSIDE:SSL,CONTROLLER:PLAINTEXT", "listener INSIDE is SSL"),
        ("listener.security.protocol.map=INSIDE:PLAINTEXT,CONTROLLER:SASL_SSL", "listener CONTROLLER is SASL_SSL"),
        ("remote.log.storage.system.enable=true", "tiered storage"),
        ("log.cleanup.policy=compact", "compaction"),
    ],
)
def test_what_must_not_be_ignored_is_refused_by_check_and_server(penstock: Penstock, line: str, part: str) -> None:
    Path("server.properties").write_text(GOOD + line + "\n")
    rows = json.loads(penstock("config", "check", "server.properties", "-o", "json").out)
    assert [row["kind"] for row in rows] == ["refusal"]
    assert part in rows[0]["complaint"]
    assert "hush" not in rows[0]["complaint"]
    assert doctor_says(penstock) == [(False, rows[0]["complaint"])]
    result = penstock("server", "--config", "server.properties")
    assert (result.code, result.out) == (1, "")
    assert result.err == f"penstock: server.properties cannot be used as it is: {rows[0]['complaint']}.\n"


def test_controllers_that_speak_tls_cannot_be_joined(penstock: Penstock) -> None:
    Path("server.properties").write_text(
        "process.roles=broker\nnode.id=4\nlisteners=PLAINTEXT://localhost:9092\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.voters=1@localhost:9093\nlistener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:SSL\n"
    )
    result = penstock("config", "check", "server.properties")
    assert (result.code, "listener CONTROLLER is SSL" in result.out) == (1, True)


def test_each_setting_is_complained_of_once(penstock: Penstock) -> None:
    Path("server.properties").write_text("zookeeper.connect=zk\nlog.retension.ms=5\nssl.key.password=x\nmy.plugin=y\n")
    rows = json.loads(penstock("config", "check", "server.properties", "-o", "json").out)
    assert [row["kind"] for row in rows] == ["error", "error", "refusal", "no effect"]
    assert rows[-1]["complaint"] == "my.plugin has no effect in this version: this version has no such setting"
    result = penstock("server", "--config", "server.properties")
    assert len(result.err.splitlines()) == 4, "a line for each that keeps the node from starting"


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
    plan = plan_of(dict(parse_properties(GOOD)), allows_plaintext=False)
    assert (plan.node_id, plan.address, str(plan.data_path)) == (3, ("localhost", 9092), "/data/penstock")
    assert plan.static["process.roles"] == "broker,controller"


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"listeners": "SSL://:9092"}, "not served yet"),
        ({"listeners": "PLAINTEXT://:9092,SSL://:9093"}, "listener SSL is SSL, which is not served yet"),
        ({"log.dirs": "a,b"}, "a node has one"),
    ],
)
def test_what_a_node_cannot_do_yet_is_said(settings: dict[str, str], part: str) -> None:
    with pytest.raises(Failed, match=part):
        plan_of(settings, allows_plaintext=False)


# --- listeners --------------------------------------------------------------------------------------------------------

TWO = {
    "listeners": "HOST://127.0.0.1:9092,DOCKER://10.0.0.1:29092",
    "listener.security.protocol.map": "HOST:PLAINTEXT,DOCKER:PLAINTEXT",
}


def listeners_of(**settings: str) -> tuple[list[tuple[object, ...]], str]:
    """Name, port, advertised address of each listener, and the name of the inter-broker listener."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    plan = plan_of(TWO | named, allows_plaintext=False)
    return [(each.name, each.port, each.advertised, each.is_advertised) for each in plan.listeners], plan.inter_broker


def test_a_broker_may_have_several_listeners() -> None:
    assert listeners_of(inter_broker_listener_name="docker") == (
        [("HOST", 9092, None, True), ("DOCKER", 29092, None, True)],
        "DOCKER",
    )
    advertised = "docker://kafka:29092, HOST://localhost:19092"
    assert listeners_of(inter_broker_listener_name="HOST", advertised_listeners=advertised) == (
        [("HOST", 9092, ("localhost", 19092), True), ("DOCKER", 29092, ("kafka", 29092), True)],
        "HOST",
    )


def test_a_listener_that_is_not_advertised_is_not_for_brokers() -> None:
    assert listeners_of(advertised_listeners="DOCKER://kafka:29092") == (
        [("HOST", 9092, None, False), ("DOCKER", 29092, ("kafka", 29092), True)],
        "DOCKER",
    )


@pytest.mark.parametrize(
    ("listeners", "name"),
    [("HOST://:1,PLAINTEXT://:2", "PLAINTEXT"), ("HOST://:1", "HOST"), ("PLAINTEXT://:1", "PLAINTEXT")],
)
def test_brokers_use_plaintext_or_the_only_listener_where_nothing_is_set(listeners: str, name: str) -> None:
    assert listeners_of(listeners=listeners)[1] == name


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        (TWO, "nothing says which of the listeners HOST, DOCKER brokers use"),
        (TWO | {"inter.broker.listener.name": "WEB"}, "is WEB, which is none of the listeners HOST, DOCKER"),
        (
            TWO | {"inter.broker.listener.name": "HOST", "advertised.listeners": "DOCKER://kafka:1"},
            "is HOST, which is none of the listeners DOCKER",
        ),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "are both set",
        ),
        (
            {
                "security.inter.broker.protocol": "PLAINTEXT",
                "listeners": "INSIDE://localhost:9092",
                "listener.security.protocol.map": "INSIDE:PLAINTEXT",
            },
            "is PLAINTEXT, and none of the listeners INSIDE is named so",
        ),
        (
            {"listeners": "IN://:1", "listener.security.protocol.map": "IN:SASL_SSL"},
            "listener IN is SASL_SSL, which is not",
        ),
        ({"listeners": "CONTROLLER://:1"}, "has none for clients"),
        (
            {
                "listeners": "PLAINTEXT://:1,CONTROLLER://:2",
                "controller.listener.names": "CONTROLLER",
                "inter.broker.listener.name": "CONTROLLER",
            },
            "is CONTROLLER, which is none of the listeners PLAINTEXT for clients",
        ),
        (
            {"listeners": "PLAINTEXT://:1,CONTROLLER://:2", "advertised.listeners": "CONTROLLER://c:2"},
            "names none of the listeners for clients",
        ),
    ],
)
def test_listeners_that_are_not_decided_are_refused_by_server_and_check(settings: dict[str, str], part: str) -> None:
    with pytest.raises(Failed, match=part):
        plan_of(settings, allows_plaintext=False)
    found = validate(settings)
    assert any(part in each for each in (*found.errors, *found.refusals)), found


def test_a_node_among_others_says_where_they_reach_it() -> None:
    own = {
        "listeners": "PLAINTEXT://0.0.0.0:9092,INSIDE://:29092,CONTROLLER://:9093",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "node.id": "1",
    }
    among = own | {"controller.quorum.voters": VOTERS}
    assert [each[:20] for each in validate(among).errors] == ["listener PLAINTEXT i", "listener INSIDE is b"]
    assert not validate(among | {"advertised.listeners": "PLAINTEXT://a:9092"}).errors
    assert not validate(own).errors, "alone it is reached at the address that its clients know"


# --- roles and the quorum ---------------------------------------------------------------------------------------------

VOTERS = "1@a:9093,2@b:9093,3@c:9093"
BOTH = "PLAINTEXT://:9092,CONTROLLER://:9093"


def role_of(**settings: str) -> Role:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return plan_of(named, allows_plaintext=False).role


def test_a_node_without_a_word_about_others_is_a_cluster_of_its_own() -> None:
    assert role_of() == Role()


def test_a_voter_of_three_knows_the_others() -> None:
    role = role_of(node_id="2", listeners=BOTH, controller_quorum_voters=VOTERS)
    assert (role.is_broker, role.is_controller) == (True, True)
    assert role.listener is not None
    assert (role.listener.name, role.listener.port) == ("CONTROLLER", 9093)
    assert role.voters == ((1, Address("a", 9093)), (2, Address("b", 9093)), (3, Address("c", 9093)))
    assert role.quorum == "1@a:9093, 2@b:9093, 3@c:9093"


def test_who_is_not_among_the_voters_is_a_broker() -> None:
    role = role_of(node_id="7", controller_quorum_voters=VOTERS)
    assert (role.is_broker, role.is_controller, role.listener) == (True, False, None)


def test_a_controller_needs_no_listener_for_clients() -> None:
    plan = plan_of(
        {
            "process.roles": "controller",
            "node.id": "1",
            "listeners": "CONTROLLER://c1:9093",
            "controller.quorum.voters": "1@c1:9093",
        },
        allows_plaintext=False,
    )
    assert (plan.address, plan.listeners, plan.role.is_broker) == (("c1", 9093), (), False)


@pytest.mark.parametrize("servers", ["localhost:9093", ""])
def test_a_node_that_is_told_to_find_the_quorum_at_itself_is_its_first_voter(servers: str) -> None:
    """Kafka's own config/server.properties is written this way."""
    role = role_of(
        process_roles="broker,controller", node_id="5", listeners=BOTH, controller_quorum_bootstrap_servers=servers
    )
    assert role.voters == ((5, Address("localhost", 9093)),)
    assert role.quorum == ""


def test_a_controller_that_finds_the_quorum_elsewhere_joins_it() -> None:
    role = role_of(
        process_roles="controller",
        node_id="9",
        listeners="CONTROLLER://:9093",
        controller_quorum_bootstrap_servers="a:9093,b:9093",
    )
    assert (role.voters, role.bootstrap_servers) == ((), (Address("a", 9093), Address("b", 9093)))


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"node.id": "1", "controller.quorum.voters": VOTERS}, "add CONTROLLER://host:port to listeners"),
        ({"process.roles": "broker"}, "set controller.quorum.voters"),
        ({"controller.quorum.voters": "a:9093"}, "is not id@host:port"),
        ({"controller.quorum.bootstrap.servers": "a:b", "process.roles": "broker"}, "the port is a number"),
        (
            {
                "process.roles": "controller",
                "node.id": "8",
                "listeners": "CONTROLLER://:9093",
                "controller.quorum.voters": VOTERS,
            },
            "has no 8@host:port",
        ),
        ({"listeners": BOTH, "listener.security.protocol.map": "CONTROLLER:SSL"}, "not served yet"),
    ],
)
def test_a_quorum_that_cannot_come_about_is_said(settings: dict[str, str], part: str) -> None:
    with pytest.raises(Failed, match=part):
        plan_of(settings, allows_plaintext=False)
