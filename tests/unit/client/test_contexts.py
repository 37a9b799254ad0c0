"""Contexts: files of properties that only their user reads, replaced as a whole."""

import stat
from pathlib import Path

import pytest

from penstock.client.contexts import Contexts

PROD = {
    "bootstrap.servers": "a:1,b:2",
    "sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="=#!";',
}


def test_a_context_is_read_as_it_was_written_and_by_its_user_only(tmp_path: Path) -> None:
    contexts = Contexts(tmp_path / "penstock")
    contexts.add("prod", PROD)
    contexts.add("prod", PROD | {"client.id": "x"})
    assert contexts.load("prod") == PROD | {"client.id": "x"}
    assert stat.S_IMODE(contexts.path("prod").stat().st_mode) == 0o600
    assert stat.S_IMODE(contexts.path("prod").parent.stat().st_mode) == 0o700
    assert [each.name for each in contexts.path("prod").parent.iterdir()] == ["prod.properties"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contexts = Contexts(tmp_path)
    contexts.add("prod", PROD)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        contexts.add("prod", {"bootstrap.servers": "other:1"})
    assert contexts.load("prod") == PROD
    assert [each.name for each in contexts.path("prod").parent.iterdir()] == ["prod.properties"]


def test_one_is_in_use_until_it_is_removed(tmp_path: Path) -> None:
    contexts = Contexts(tmp_path)
    assert (contexts.in_use(), contexts.names()) == (None, [])
    contexts.add("b", PROD)
    contexts.add("a", PROD)
    contexts.use("b")
    assert (contexts.in_use(), contexts.names()) == ("b", ["a", "b"])
    contexts.remove("b")
    assert (contexts.in_use(), contexts.names()) == (None, ["a"])
    contexts.use("a")
    contexts.path("a").unlink()
    assert contexts.in_use() is None


@pytest.mark.parametrize("name", ["", "../prod", ".hidden", "a b", "x" * 101])
def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a context"):
        Contexts(tmp_path).add(name, PROD)


def test_what_cannot_be_used_is_said(tmp_path: Path) -> None:
    contexts = Contexts(tmp_path)
    with pytest.raises(ValueError, match="there is no context prod"):
        contexts.use("prod")
    contexts.add("prod", {"client.id": "x"})
    with pytest.raises(ValueError, match=r"the context prod lacks bootstrap\.servers"):
        contexts.load("prod")
