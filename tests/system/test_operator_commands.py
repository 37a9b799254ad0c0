"""What an operator needs besides topics and groups, against a real broker: brokers, offsets, records that go, files."""

import json
import os
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.ports import free_port
from penstock.client import Client
from penstock.client.contexts import Contexts
from tests.system.commands import ENVIRONMENT, PENSTOCK, Shell, a_broker


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    directory = tmp_path_factory.mktemp("operator")
    with a_broker(directory, "dev", "--port", "0", "--metrics-port", str(free_port())):
        shell = Shell(directory)
        shell("topic", "create", "orders", "-p", "2")
        shell("produce", "orders", "-p", "0", given=b"1\n2\n3\n4\n")
        yield shell


def rows(shell: Shell, *arguments: str) -> list[dict[str, object]]:
    found = json.loads(shell(*arguments, "-o", "json"))
    assert isinstance(found, list)
    return found


def test_the_cluster_and_its_brokers(shell: Shell) -> None:
    info = json.loads(shell("cluster", "info", "-o", "json"))
    assert info["cluster_id"] == "penstock-dev"
    assert str(shell.directory / ".penstock" / "endpoint") in info["source"]
    (broker,) = rows(shell, "broker", "list")
    assert (broker["broker"], broker["state"], broker["address"]) == (1, "up", info["bootstrap"])
    (place,) = rows(shell, "broker", "logdirs", "-t", "orders")
    assert (place["replicas"], place["state"], place["path"]) == (2, "ok", ".penstock/data")
    replicas = rows(shell, "broker", "logdirs", "1", "--partitions", "-t", "orders")
    assert [(each["topic"], each["partition"]) for each in replicas] == [("orders", 0), ("orders", 1)]
    assert sum(int(str(each["bytes"])) for each in replicas) == place["bytes"]
    assert "broker 7 is not there; those that are: 1" in shell.fails("broker", "logdirs", "7")


def test_settings_of_brokers(shell: Shell) -> None:
    assert shell("broker", "config", "-c", "log.retention.ms=86400000", "--dry-run").endswith("could be changed.\n")
    assert rows(shell, "broker", "config") == []
    assert shell("broker", "config", "-c", "log.retention.ms=86400000") == (
        "log.retention.ms of all brokers changed.\n"
    )
    (entry,) = rows(shell, "broker", "config")
    assert (entry["setting"], entry["value"], entry["source"]) == ("log.retention.ms", "86400000", "all_brokers")
    named = {each["setting"]: each["value"] for each in rows(shell, "broker", "config", "1", "--all")}
    assert named["log.retention.ms"] == "86400000"
    shell("broker", "config", "-d", "log.retention.ms")
    assert rows(shell, "broker", "config") == []
    assert "broker 7 is not there" in shell.fails("broker", "config", "7")


def test_levels_of_loggers(shell: Shell) -> None:
    levels = {each["logger"]: each["level"] for each in rows(shell, "broker", "log-level", "1")}
    assert levels["penstock.groups"] == "WARN"
    assert rows(shell, "broker", "log-level", "1", "-c", "penstock.groups=ERROR") == [
        {"logger": "penstock.groups", "level": "ERROR"}
    ]
    assert rows(shell, "broker", "log-level", "1", "-d", "penstock.groups")[0]["level"] == "WARN"
    assert "`penstock broker log-level 1` lists them" in shell.fails("broker", "log-level", "1", "-c", "nope=INFO")


def test_offsets_and_trimming(shell: Shell) -> None:
    shell("topic", "create", "old", "-p", "2")
    shell("produce", "old", "-p", "0", given=b"1\n2\n3\n4\n5\n")
    found = rows(shell, "topic", "offsets", "old", "--at", "-2")
    assert [(each["partition"], each["start"], each["end"], each["at"]) for each in found] == [
        (0, 0, 5, 3),
        (1, 0, 0, 0),
    ]
    assert int(str(found[0]["newest_timestamp_ms"])) > 1_700_000_000_000
    assert rows(shell, "topic", "trim", "old", "--before", "2", "--dry-run")[0]["trimmed"] == 2
    done = shell.run("topic", "trim", "old", "--before", "2", "-o", "json")
    assert done.stderr.decode().startswith("Cluster 127.0.0.1:")
    assert [each["start"] for each in json.loads(done.stdout)] == [2, 0]
    assert shell("consume", "old", "-e") == "3\n4\n5\n"
    assert rows(shell, "topic", "trim", "old", "--before", "1")[0]["trimmed"] == 0
    assert rows(shell, "topic", "trim", "old", "--before", "1h")[0]["trimmed"] == 0
    assert rows(shell, "topic", "trim", "old", "--before", "-1", "-p", "0")[0]["start"] == 4
    assert rows(shell, "topic", "trim", "old", "--before", "end")[0]["start"] == 5
    assert "old has no partition 7" in shell.fails("topic", "trim", "old", "-p", "7", "--before", "end")


def test_records_are_also_found_below_topic(shell: Shell) -> None:
    assert shell("topic", "produce", "below", given=b"x\n") == "below[0]@0\n"
    assert shell("topic", "consume", "below", "-e") == "x\n"


def test_committed_offsets_are_deleted(shell: Shell) -> None:
    shell("group", "seek", "billing", "-t", "orders", "--to-latest", "--execute")
    assert shell("group", "offset-delete", "billing", "-t", "orders:0") == "orders[0]: offset 4 deleted.\n"
    assert shell("group", "offset-delete", "billing", "-t", "orders:0") == "billing has committed nothing there.\n"
    shell("group", "offset-delete", "billing", "-t", "orders")
    assert "there is no group nobody" in shell.fails("group", "offset-delete", "nobody", "-t", "orders")


def test_the_files_of_a_log_are_read(shell: Shell) -> None:
    printed = shell("log", "dump", ".penstock/data/logs/orders-0", "--records", "-o", "json")
    values = [each["value"] for line in printed.splitlines() if "record" in (each := json.loads(line))]
    assert values == ["1", "2", "3", "4"]


def test_changes_are_reported_as_json(shell: Shell) -> None:
    def done(*arguments: str) -> object:
        return json.loads(shell(*arguments, "--output", "json"))

    made = {"topic": "j1", "result": "created", "partitions": 2, "replicas": 1}
    assert done("topic", "create", "j1", "-p", "2") == [made]
    assert done("topic", "create", "j1", "--if-not-exists") == [{"topic": "j1", "result": "exists"}]
    assert done("topic", "alter", "j1", "-p", "3", "--dry-run") == [{"topic": "j1", "result": "could be changed"}]
    assert done("topic", "elect", "j1") == []
    assert done("reassign", "cancel") == []
    shell("group", "reset", "j", "-t", "j1:0", "--to-latest", "--execute")
    deleted = {"group": "j", "topic": "j1", "partition": 0, "offset": 0, "result": "deleted"}
    assert done("group", "offset-delete", "j", "-t", "j1") == [deleted]
    partly = shell.run("topic", "create", "j2", "j1", "-o", "json")
    assert (partly.returncode, [each["topic"] for each in json.loads(partly.stdout)]) == (1, ["j2"])
    assert b"j1" in partly.stderr
    assert done("topic", "delete", "j1", "j2") == [{"topic": each, "result": "deleted"} for each in ("j1", "j2")]
    nothing = shell.run("topic", "delete", "j1", "-o", "json")
    assert (nothing.returncode, nothing.stdout) == (1, b"")


def test_one_file_serves_contexts_commands_and_clients(shell: Shell, tmp_path: Path) -> None:
    address = json.loads(shell("cluster", "info", "-o", "json"))["bootstrap"]
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={address}\nclient.id=nightly\nrequest.timeout.ms=9000\nlinger.ms=5\n")
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    done = shell.run("context", "add", "lab", "--command-config", str(file), environment=environment)
    assert (done.returncode, done.stderr.decode()) == (0, f"{file}: linger.ms has no effect here.\n")
    for options in (["--context", "lab"], ["--command-config", str(file)], ["-X", f"bootstrap.servers={address}"]):
        listed = shell.run("topic", "list", "-o", "json", *options, environment=environment)
        assert "orders" in [each["name"] for each in json.loads(listed.stdout)], options
    with Client.blocking(config=file) as client:
        assert "orders" in [topic.name for topic in client.topics()]


def test_a_bundle_for_a_person_who_helps(shell: Shell) -> None:
    shell("produce", "orders", given=b"a-needle-in-a-record\n")
    shell("group", "reset", "helped", "-t", "orders", "--to-latest", "--execute")
    done = shell.run("doctor", "--bundle", "--file", "bundle.zip")
    assert b"bundle.zip has" in done.stdout
    assert b"missing.txt" not in done.stdout
    with zipfile.ZipFile(shell.directory / "bundle.zip") as bundle:
        parts = {name: bundle.read(name) for name in bundle.namelist()}
    assert not any(b"needle" in each for each in parts.values()), "records stay where they are"
    assert "orders" in [each["name"] for each in json.loads(parts["cluster/topics.json"])]
    assert json.loads(parts["cluster/offsets.json"])["partitions"]["orders[0]"]["end"] >= 4
    assert "helped" in json.loads(parts["cluster/groups.json"])["groups"]
    assert json.loads(parts["brokers/1/settings.json"])["log.retention.hours"]["value"] == "168"
    assert b"penstock_info{" in parts["brokers/1/metrics.txt"]
    assert json.loads(parts["cluster/quorum.json"])["leader_id"] == 1
    assert {"cluster/health.json", "cluster/features.json", "machine.json", "findings.json"} <= parts.keys()


def test_names_are_completed(shell: Shell, tmp_path: Path) -> None:
    shell("group", "reset", "audit", "-t", "orders", "--to-latest", "--execute")

    def completions(*words: str) -> list[str]:
        done = subprocess.run(
            PENSTOCK,
            cwd=shell.directory,
            env=ENVIRONMENT
            | {
                "_PENSTOCK_COMPLETE": "complete_bash",
                "COMP_WORDS": " ".join(("penstock", *words)),
                "COMP_CWORD": str(len(words)),
                "XDG_CONFIG_HOME": str(tmp_path),
            },
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.stderr == b""
        return done.stdout.decode().split()

    assert completions("topic", "describe", "ord") == ["orders"]
    assert completions("consume", "ord") == ["orders"]
    assert completions("group", "lag", "aud") == ["audit"]
    assert completions("consume", "orders", "-g", "aud") == ["audit"]
    assert completions("group", "reset", "audit", "-t", "ord") == ["orders"]
    Contexts(tmp_path / "penstock").add("lab", {"bootstrap.servers": "127.0.0.1:1"})
    assert completions("topic", "list", "--context", "l") == ["lab"]
    assert completions("topic", "describe", "--context", "lab", "ord") == []


def test_another_context_in_use_does_not_lead_a_command_astray(shell: Shell, tmp_path: Path) -> None:
    Contexts(tmp_path / "penstock").add("prod", {"bootstrap.servers": "127.0.0.1:1"})
    Contexts(tmp_path / "penstock").use("prod")
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    shell("topic", "create", "doomed")
    done = shell.run("topic", "list", environment=environment)
    assert done.returncode == 0, "the folder goes first"
    done = shell.run("topic", "delete", "doomed", environment=environment)
    assert done.returncode == 2
    assert b"the context in use, prod, is another cluster" in done.stderr
    done = shell.run("topic", "delete", "doomed", "--yes", environment=environment)
    assert done.stdout == b"doomed deleted.\n"
    outside = tmp_path / "outside"
    outside.mkdir()
    done = subprocess.run(
        [*PENSTOCK, "topic", "list", "--context", "nope"],
        cwd=outside,
        env=ENVIRONMENT | environment | {"PENSTOCK_CONTEXT": "prod"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"there is no context nope; there are prod" in done.stderr
    assert os.path.exists(shell.directory / ".penstock" / "endpoint")
