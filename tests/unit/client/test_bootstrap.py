"""Bootstrap addresses: parsing, formatting, and the defaults."""

from pathlib import Path

import pytest

from penstock.client.bootstrap import (
    Address,
    Rule,
    default_bootstrap,
    find_cluster,
    parse_address,
    parse_addresses,
    read_endpoint,
    write_endpoint,
)
from penstock.client.contexts import Contexts


@pytest.fixture(autouse=True)
def no_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without contexts, in an empty directory without variables."""
    home = tmp_path / "home"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    for variable in ("PENSTOCK_BOOTSTRAP", "PENSTOCK_CONTEXT"):
        monkeypatch.delenv(variable, raising=False)
    place = tmp_path / "empty"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost", Address("localhost", 9092)),
        ("kafka:29092", Address("kafka", 29092)),
        (" 10.0.0.1:1 ", Address("10.0.0.1", 1)),
        ("[::1]:9093", Address("::1", 9093)),
        ("[::1]", Address("::1", 9092)),
        ("::1", Address("::1", 9092)),
    ],
)
def test_addresses_are_read(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize("text", ["", ":9092", "host:0", "host:65536", "host:x", "kafka://host:9092", "[::1", "[::1]9"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an address"):
        parse_address(text)


def test_lists_are_read_from_text_and_from_lists() -> None:
    assert parse_addresses("a:1, b:2,,a:1") == (Address("a", 1), Address("b", 2))
    assert parse_addresses(["a:1", "b"]) == (Address("a", 1), Address("b", 9092))
    with pytest.raises(ValueError, match="at least one"):
        parse_addresses(" , ")


def test_the_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_endpoint(tmp_path, "file:1")
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", "given:1,given:2")
    assert default_bootstrap(tmp_path) == "given:1,given:2"


def test_the_nearest_endpoint_file_is_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP", raising=False)
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    write_endpoint(tmp_path, "outer:1")
    assert default_bootstrap(inner) == "outer:1"
    write_endpoint(tmp_path / "a", "# where it listens\n\ninner:2\nmore")
    assert default_bootstrap(inner) == "inner:2"
    monkeypatch.chdir(inner)
    assert default_bootstrap() == "inner:2"


def test_localhost_is_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", " ")
    write_endpoint(tmp_path, "")
    assert default_bootstrap(tmp_path) == "localhost:9092"


def test_every_rule_in_its_order(no_user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step takes the strongest rule away."""
    contexts = Contexts()
    contexts.add("named", {"bootstrap.servers": "named:1", "client.id": "me"})
    contexts.add("variable", {"bootstrap.servers": "variable:1"})
    contexts.add("used", {"bootstrap.servers": "used:1"})
    contexts.use("used")
    monkeypatch.setenv("PENSTOCK_CONTEXT", "variable")
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", "plain:1")
    write_endpoint(no_user, "folder:1")
    found = find_cluster("given:1", context="named")
    assert (found.bootstrap, found.rule, found.sentence) == ("given:1", Rule.ADDRESS, "Cluster given:1, given by -b.")
    found = find_cluster(context="named")
    assert (found.bootstrap, found.rule, found.properties) == ("named:1", Rule.CONTEXT, {"client.id": "me"})
    assert found.sentence == "Cluster named:1, the context named, given by --context."
    found = find_cluster()
    assert found.sentence == "Cluster variable:1, the context variable, given by PENSTOCK_CONTEXT."
    monkeypatch.delenv("PENSTOCK_CONTEXT")
    assert find_cluster().sentence == "Cluster plain:1, given by PENSTOCK_BOOTSTRAP."
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP")
    found = find_cluster()
    assert (found.bootstrap, found.rule, found.rival) == ("folder:1", Rule.FOLDER, "used")
    assert str(no_user / ".penstock" / "endpoint") in found.sentence
    (no_user / ".penstock" / "endpoint").unlink()
    found = find_cluster()
    assert (found.rule, found.sentence) == (Rule.CONTEXT_IN_USE, "Cluster used:1, the context in use, used.")
    contexts.remove("used")
    found = find_cluster()
    assert (found.rule, found.bootstrap) == (Rule.DEFAULT, "localhost:9092")


def test_a_context_in_use_with_the_addresses_of_the_folder_is_no_rival(no_user: Path) -> None:
    contexts = Contexts()
    contexts.add("here", {"bootstrap.servers": "b:2, a:1"})
    contexts.use("here")
    write_endpoint(no_user, "a:1,b:2")
    assert find_cluster().rival is None
    contexts.add("here", {"client.id": "without an address"})
    assert find_cluster().rival == "here"


def test_an_unknown_context_is_named() -> None:
    with pytest.raises(ValueError, match=r"no context prod; `penstock context add NAME -b host:port` makes one"):
        find_cluster(context="prod")
    Contexts().add("staging", {"bootstrap.servers": "a:1"})
    with pytest.raises(ValueError, match="no context prod; there are staging"):
        find_cluster(context="prod")


def test_a_client_does_not_connect_without_the_login_of_a_context() -> None:
    Contexts().add("prod", {"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL"})
    Contexts().use("prod")
    with pytest.raises(ValueError, match=r"the context in use, prod, connects with security\.protocol"):
        default_bootstrap()


def test_the_endpoint_file_is_not_for_git(tmp_path: Path) -> None:
    write_endpoint(tmp_path, "a:1,b:2")
    assert read_endpoint(tmp_path) == "a:1,b:2"
    assert (tmp_path / ".penstock" / ".gitignore").read_text() == "*\n"
    assert read_endpoint(tmp_path / ".penstock") is None
