"""`penstock server` with settings from server.properties, TOML, and environment variables as in Kafka's images."""

import asyncio
import json
from pathlib import Path

import pytest

from penstock.client.cluster import Cluster
from penstock.client.metadata import Broker
from penstock.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.system.commands import Shell, a_broker

PROPERTIES = "node.id=7\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs=data\nnum.partitions=4\n"
TOML = """
node.id = 7
listeners = ["PLAINTEXT://127.0.0.1:0"]
num.partitions = 4
[log]
dirs = "data"
"""
VARIABLES = {
    "NODE_ID": "7",
    "LISTENERS": "PLAINTEXT://127.0.0.1:0",
    "LOG_DIRS": "data",
    "NUM_PARTITIONS": "4",
}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def check(shell: Shell, address: str) -> None:
    """Checks that the node has the configured settings."""
    assert "4 partitions" in shell("topic", "create", "orders", "-b", address)
    (found,) = json.loads(shell("topic", "describe", "orders", "-b", address, "-o", "json"))
    assert {each["leader"] for each in found["partitions"]} == {7}
    assert (shell.directory / "data" / "directory").exists()


@pytest.mark.parametrize(
    ("name", "text"), [("server.properties", PROPERTIES), ("broker.toml", TOML)], ids=["properties", "toml"]
)
def test_a_file(shell: Shell, name: str, text: str) -> None:
    (shell.directory / name).write_text(text)
    with a_broker(shell.directory, "server", "--config", name) as broker:
        check(shell, broker.address)


@pytest.mark.parametrize("prefix", ["KAFKA_", "KAFKA_CFG_", "PENSTOCK_"])
def test_variables_alone(shell: Shell, prefix: str) -> None:
    variables = {f"{prefix}{name}": value for name, value in VARIABLES.items()}
    with a_broker(shell.directory, "server", environment=variables) as broker:
        check(shell, broker.address)


def test_variables_are_stronger_than_the_file(shell: Shell) -> None:
    (shell.directory / "server.properties").write_text(PROPERTIES.replace("num.partitions=4", "num.partitions=9"))
    stronger = {"KAFKA_NUM_PARTITIONS": "4"}
    with a_broker(shell.directory, "server", "-c", "server.properties", environment=stronger) as broker:
        check(shell, broker.address)


def test_clients_are_sent_where_the_file_says(shell: Shell) -> None:
    (shell.directory / "server.properties").write_text(PROPERTIES + "advertised.listeners=PLAINTEXT://127.0.0.1:4444\n")

    async def ask(address: str) -> tuple[Broker, Broker]:
        async with Cluster(address) as cluster:
            await cluster.refresh()
            (by_metadata,) = cluster.view.brokers.values()
            connection = await cluster.any_connection()
            answer = await connection.ask(
                DescribeClusterRequest(include_cluster_authorized_operations=False), DescribeClusterResponse
            )
            (by_cluster,) = (Broker(each.broker_id, each.host, each.port) for each in answer.brokers)
        return by_metadata, by_cluster

    with a_broker(shell.directory, "server", "-c", "server.properties") as broker:
        told = asyncio.run(ask(broker.address))
    assert told == (Broker(7, "127.0.0.1", 4444),) * 2


def test_two_nodes_on_one_directory(shell: Shell) -> None:
    (shell.directory / "server.properties").write_text(PROPERTIES)
    with a_broker(shell.directory, "server", "-c", "server.properties"):
        sentence = shell.fails("server", "-c", "server.properties")
    assert sentence == "penstock: another broker uses data: stop it, or choose another directory.\n"


def test_a_node_does_not_open_the_data_of_another(shell: Shell) -> None:
    (shell.directory / "server.properties").write_text(PROPERTIES)
    with a_broker(shell.directory, "server", "-c", "server.properties"):
        pass
    (shell.directory / "server.properties").write_text(PROPERTIES.replace("node.id=7", "node.id=8"))
    assert "belongs to node id 7, not 8" in shell.fails("server", "-c", "server.properties")


def test_settings_that_must_not_be_ignored_keep_a_node_from_starting(shell: Shell) -> None:
    dangerous = "authorizer.class.name=StandardAuthorizer\nsuper.users=User:admin\nlog.cleanup.policy=compact\n"
    (shell.directory / "server.properties").write_text(PROPERTIES + dangerous + "num.io.threads=8\n")
    told = shell.fails("server", "-c", "server.properties").splitlines()
    assert told[0] == "penstock: server.properties cannot be used as it is:"
    assert [line.split()[0] for line in told[1:]] == ["authorizer.class.name", "log.cleanup.policy", "super.users"]
    assert not (shell.directory / "data").exists(), "nothing is opened, let alone served"
    environment = {"KAFKA_SSL_KEYSTORE_LOCATION": "/etc/kafka/keys.jks"}
    (shell.directory / "server.properties").write_text(PROPERTIES)
    done = shell.run("server", "-c", "server.properties", environment=environment)
    assert (done.returncode, b"ssl.keystore.location asks for TLS" in done.stderr) == (1, True)


def test_a_node_starts_with_harmless_settings_and_warns_of_them_in_one_line(shell: Shell) -> None:
    harmless = "num.io.threads=8\nsocket.send.buffer.bytes=102400\nmy.plugin.class=y\ncompression.type=producer\n"
    (shell.directory / "server.properties").write_text(PROPERTIES + harmless)
    arguments = ("server", "-c", "server.properties", "--log-format", "json")
    with a_broker(shell.directory, *arguments, complains=True) as broker:
        check(shell, broker.address)
        entries = [json.loads(line) for line in broker.log.splitlines() if line.startswith("{")]
    (entry,) = [each for each in entries if each["event"] == "settings-without-effect"]
    assert (entry["level"], entry["logger"], entry["fields"]["count"]) == ("WARNING", "penstock.settings", 3)
    assert entry["message"] == (
        "Settings of node 7 have no effect in this version, or not all of it: "
        "my.plugin.class (this version has no such setting); "
        "num.io.threads (one event loop serves all requests, with workers beside it); "
        "socket.send.buffer.bytes (it is left to the system)."
    )


def test_plaintext_for_everybody_must_be_asked_for(shell: Shell) -> None:
    open_to_all = PROPERTIES.replace("127.0.0.1:0", "0.0.0.0:0")
    (shell.directory / "server.properties").write_text(open_to_all)
    assert "set allow.plaintext.beyond.loopback=true" in shell.fails("server", "-c", "server.properties")
    (shell.directory / "server.properties").write_text(open_to_all + "allow.plaintext.beyond.loopback=true\n")
    with a_broker(shell.directory, "server", "-c", "server.properties") as broker:
        check(shell, broker.address.replace("0.0.0.0", "127.0.0.1"))
