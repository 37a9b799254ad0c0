"""Every command finds its cluster by one rule, and takes the same properties to connect there."""

from pathlib import Path

import pytest
import typer

from penstock.cli.connection.connecting import ConnectionOptions, client_arguments, find, given
from penstock.cli.errors import Failed, Misused
from penstock.cli.main import app
from penstock.client.bootstrap import FoundCluster, Rule, write_endpoint
from penstock.client.contexts import Contexts
from tests.unit.cli.commands import commands
from tests.unit.cli.conftest import Penstock

NOBODY = "127.0.0.1:1"
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
WITHOUT_A_CLUSTER = (
    {("dev",), ("server",), ("size",), ("config", "check"), ("log", "dump")}
    | {("sandbox", each) for each in ("up", "down", "kill", "restart", "status")}
    | {("context", each) for each in ("add", "use", "list", "show", "remove")}
    | {("spark", each) for each in ("check", "run", "status", "explain")}  # their file names it, or the rule
)
DESTRUCTIVE = [
    ("topic", "delete", "orders"),
    ("topic", "trim", "orders", "--before", "end"),
    ("topic", "alter", "orders", "-c", "retention.ms=1"),
    ("topic", "alter", "orders", "-d", "cleanup.policy"),
    ("broker", "config", "-c", "log.retention.bytes=1"),
    ("broker", "config", "1", "-d", "log.retention.ms"),
    ("topic", "elect", "orders", "--unclean"),
    ("topic", "trim", "orders", "--before", "end"),
    ("group", "delete", "billing"),
    ("group", "offset-delete", "billing", "-t", "orders"),
    ("quorum", "remove", "3"),
    ("quorum", "add", "4", "--controller", "127.0.0.1:1"),
    ("reassign", "cancel"),
    ("group", "reset", "billing", "--to-earliest", "--execute"),
    ("group", "offset-delete", "billing", "-t", "orders"),
    ("reassign", "apply"),
    ("reassign", "cancel"),
    ("quorum", "add", "4", "--controller", "c4:9093"),
    ("quorum", "remove", "3"),
    ("cluster", "decommission", "1"),
    ("cluster", "features", "--lower", "metadata.version=1"),
    ("cluster", "features", "--raise", "all"),
]
NOTHING_IS_LOST = {("bench", "produce"), ("bench", "end-to-end"), ("bench", "latency"), ("verify",)}
"""Their --yes is about a topic that exists."""
HARMLESS = [
    ("topic", "elect", "t"),
    ("topic", "trim", "t", "--before", "end", "--dry-run"),
    ("topic", "alter", "t", "-p", "9"),
    ("topic", "alter", "t", "-c", "retention.ms=1", "--dry-run"),
    ("topic", "alter", "t", "-c", "segment.bytes=1000000"),
    ("broker", "config", "-c", "num.partitions=3"),
    ("group", "reset", "g", "--to-earliest"),
    ("cluster", "decommission", "1", "--undo"),
    ("cluster", "features", "--raise", "all", "--dry-run"),
]
PLAN = '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}'


def test_every_command_that_connects_takes_the_same_options(penstock: Penstock) -> None:
    for path in set(commands()) - WITHOUT_A_CLUSTER:
        text = penstock(*path, "--help").out
        for option in ("-b, --bootstrap", "--context", "--command-config", "-X K=V"):
            assert option in text, path
    assert isinstance(app, typer.Typer)


@pytest.mark.parametrize("path", sorted(set(commands()) - WITHOUT_A_CLUSTER), ids=" ".join)
def test_short_o_is_the_offset_in_consume_and_the_output_elsewhere(penstock: Penstock, path: tuple[str, ...]) -> None:
    text = penstock(*path, "--help").out
    is_consume = path[-1] == "consume" and path[0] != "bench"
    assert ("-o, --output" in text or "-o, " not in text) or is_consume


def test_a_context_is_named_by_an_option(penstock: Penstock) -> None:
    Contexts().add("away", {"bootstrap.servers": NOBODY})
    result = penstock("topic", "list", "--context", "away")
    assert result.code == 1
    assert f"no connection to {NOBODY}" in result.err
    assert "that of the context away, given by --context" in result.err
    assert "there are away" in penstock("topic", "list", "--context", "home").err


def test_the_command_line_overrides_the_file_and_the_file_the_context(tmp_path: Path) -> None:
    Contexts(tmp_path / "penstock")
    file = tmp_path / "client.properties"
    file.write_text("client.id=file\nrequest.timeout.ms=5000\nacks=all\n")
    token = given.set(ConnectionOptions(None, file, {"client.id": "line"}))
    try:
        found = find("a:1")
    finally:
        given.reset(token)
    assert found.properties == {"client.id": "line", "request.timeout.ms": "5000"}
    assert client_arguments(found) == {"client_id": "line", "request_timeout_ms": 5000}


def test_what_has_no_effect_is_never_silent(penstock: Penstock, tmp_path: Path) -> None:
    result = penstock("topic", "list", "-b", NOBODY, "-X", "security.protcol=SSL")
    assert result.code == 2
    assert "-X security.protcol has no effect here; do you mean security.protocol?" in result.err
    (tmp_path / "client.properties").write_text("linger.ms=5\nacks=all\n")
    result = penstock("topic", "list", "-b", NOBODY, "--command-config", "client.properties")
    assert result.err.startswith("client.properties: linger.ms, acks have no effect here.")
    assert penstock("topic", "list", "-X", "client.id").code == 2


def test_a_login_in_java_s_words(tmp_path: Path) -> None:
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": LOGIN}
    arguments = client_arguments(FoundCluster("a:1", Rule.ADDRESS, "", properties))
    assert arguments == {"sasl": ("PLAIN", "u", "p")}
    with pytest.raises(Failed, match=r"^security\.protocol is one of"):
        client_arguments(FoundCluster("a:1", Rule.ADDRESS, "", {"security.protocol": "TLS"}))
    with pytest.raises(Failed, match=r"request\.timeout\.ms must be a number"):
        client_arguments(FoundCluster("a:1", Rule.ADDRESS, "", {"request.timeout.ms": "5s"}))


def test_an_address_among_the_properties_counts_as_one(tmp_path: Path) -> None:
    token = given.set(ConnectionOptions(None, None, {"bootstrap.servers": "a:1"}))
    try:
        assert find().sentence == "Cluster a:1, given by bootstrap.servers on the command line."
        assert find("b:1").bootstrap == "b:1"
    finally:
        given.reset(token)


@pytest.mark.parametrize("command", DESTRUCTIVE, ids=" ".join)
def test_what_destroys_names_the_cluster_and_trusts_no_weak_rule(
    penstock: Penstock, command: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "reassignment.json").write_text(PLAN)
    result = penstock(*command)
    assert result.code == 2
    assert result.err.splitlines()[0] == "Cluster localhost:9092, the default, because nothing names another."
    assert "give -b or --context, or --yes if localhost:9092 is meant" in result.err
    Contexts().add("prod", {"bootstrap.servers": "127.0.0.1:2"})
    Contexts().use("prod")
    write_endpoint(tmp_path, NOBODY)
    result = penstock(*command)
    assert result.code == 2
    assert f"Cluster {NOBODY}, found in {tmp_path}/.penstock/endpoint." in result.err
    assert "the context in use, prod, is another cluster: give -b or --context, or --yes" in result.err
    for sure in (("--yes",), ("-b", NOBODY), ("--context", "prod")):
        result = penstock(*command, *sure)
        assert result.code == 1
        assert "no connection to" in result.err
    Contexts().use(None)
    assert "no connection to" in penstock(*command).err, "the folder is a rule to trust"


def test_every_command_that_destroys_is_among_these(penstock: Penstock) -> None:
    with_yes = {path for path in set(commands()) - WITHOUT_A_CLUSTER if "--yes" in penstock(*path, "--help").out}
    tried = {each for each in with_yes for command in DESTRUCTIVE if command[: len(each)] == each}
    assert with_yes - NOTHING_IS_LOST == tried
    assert {command[:2] for command in DESTRUCTIVE} == tried


def test_commands_that_only_show_need_no_yes(penstock: Penstock, tmp_path: Path) -> None:
    write_endpoint(tmp_path, NOBODY)
    Contexts().add("prod", {"bootstrap.servers": "127.0.0.1:2"})
    Contexts().use("prod")
    for command in (("topic", "list"), *HARMLESS):
        assert penstock(*command).err.startswith(f"penstock: no connection to {NOBODY}")


def test_a_misuse_of_pairs() -> None:
    token = given.set(ConnectionOptions(None, None, {"foo": "1"}))
    try:
        with pytest.raises(Misused, match="-X foo has no effect here: leave it out"):
            find()
    finally:
        given.reset(token)
