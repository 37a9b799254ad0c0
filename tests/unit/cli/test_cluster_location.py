"""Commands that take --dir act on the sandbox that it names, or on the cluster that the rule of all commands finds."""

import json
from pathlib import Path

import pytest

from penstock.cli.cluster.location import find_at
from penstock.cli.errors import Failed
from penstock.cli.sandbox_place import HOME, sandbox_of
from penstock.client.bootstrap import Rule, write_endpoint
from tests.unit.cli.conftest import Penstock

NOBODY = 1  # no process listens on this port


def a_sandbox(path: Path, *ports: int) -> None:
    """The files that `penstock sandbox up` leaves, as far as commands read them."""
    path.mkdir(parents=True)
    (path / "cluster.json").write_text("{}")
    addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
    write_endpoint(path, addresses)
    if path == HOME:
        write_endpoint(Path(), addresses)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Changes to a temporary directory that holds a sandbox."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for variable in ("PENSTOCK_BOOTSTRAP", "PENSTOCK_CONTEXT"):
        monkeypatch.delenv(variable, raising=False)
    a_sandbox(HOME, 19092, 19093)
    return tmp_path


def test_the_sandbox_of_this_folder_is_found_from_below(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_at(None)
    assert (found.bootstrap, found.rule) == ("127.0.0.1:19092,127.0.0.1:19093", Rule.FOLDER)
    assert sandbox_of(found) == (HOME, found.bootstrap)
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    assert sandbox_of(find_at(None)) == (folder / HOME, found.bootstrap)


def test_a_sandbox_is_found_in_its_own_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_sandbox(Path("other"), 29092)
    monkeypatch.chdir(folder / "other")
    found = find_at(None)
    assert found.bootstrap == "127.0.0.1:29092"
    assert sandbox_of(found) == (folder / "other", found.bootstrap)


def test_what_was_said_goes_before_what_lies_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """An explicit address wins: a plan for one cluster must not move another cluster's replicas."""
    a_sandbox(Path("other"), 29092)
    assert find_at("broker:9092", Path("other")).bootstrap == "broker:9092"
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", "staging:9092")
    assert find_at(None).bootstrap == "staging:9092"
    found = find_at(None, Path("other"))
    assert (found.bootstrap, found.sentence) == (
        "127.0.0.1:29092",
        "Cluster 127.0.0.1:29092, given by --dir other.",
    )
    assert sandbox_of(found) == (Path("other"), found.bootstrap)


def test_another_broker_of_the_folder_is_not_its_sandbox() -> None:
    write_endpoint(Path(), "127.0.0.1:9092")  # by `penstock dev`, which was started later
    assert sandbox_of(find_at(None)) is None


def test_a_command_that_reaches_nobody_names_what_starts_the_sandbox(penstock: Penstock, folder: Path) -> None:
    write_endpoint(HOME, f"127.0.0.1:{NOBODY}")
    write_endpoint(Path(), f"127.0.0.1:{NOBODY}")
    for command in (("topic", "list"), ("quorum", "status"), ("consume", "orders")):
        assert (
            "nobody answers of the cluster in .penstock/cluster: `penstock sandbox up` starts it"
            in penstock(*command).err
        )


def test_a_directory_without_a_sandbox_is_named() -> None:
    with pytest.raises(Failed, match="penstock sandbox up --dir nowhere"):
        find_at(None, Path("nowhere"))


@pytest.mark.parametrize(
    "command",
    [("quorum", "status"), ("reassign", "status"), ("reassign", "plan", "--drain", "1"), ("reassign", "apply")],
    ids=" ".join,
)
def test_commands_that_find_it_say_how_to_start_it(penstock: Penstock, command: tuple[str, ...]) -> None:
    a_sandbox(Path("stopped"), NOBODY)
    Path("reassignment.json").write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]})
    )
    done = penstock(*command, "--dir", "stopped")
    assert done.code == 1
    assert "nobody answers of the cluster in stopped: `penstock sandbox up --dir stopped` starts it" in done.err
    elsewhere = penstock(*command, "--dir", "stopped", "-b", f"127.0.0.1:{NOBODY}")
    assert elsewhere.code == 1
    assert "sandbox up" not in elsewhere.err, "-b goes first"
