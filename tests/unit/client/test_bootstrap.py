"""Addresses in, addresses out; and where they come from when nobody gives any."""

from pathlib import Path

import pytest

from penstock.client.bootstrap import Address, default_bootstrap, parse_address, parse_addresses


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
    write_endpoint(tmp_path, "file:1\n")
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", "given:1,given:2")
    assert default_bootstrap(tmp_path) == "given:1,given:2"


def test_the_nearest_endpoint_file_is_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP", raising=False)
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    write_endpoint(tmp_path, "outer:1\n")
    assert default_bootstrap(inner) == "outer:1"
    write_endpoint(tmp_path / "a", "# where it listens\n\ninner:2\nmore\n")
    assert default_bootstrap(inner) == "inner:2"
    monkeypatch.chdir(inner)
    assert default_bootstrap() == "inner:2"


def test_localhost_is_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", " ")
    write_endpoint(tmp_path, "\n")
    assert default_bootstrap(tmp_path) == "localhost:9092"


def write_endpoint(directory: Path, text: str) -> None:
    (directory / ".penstock").mkdir()
    (directory / ".penstock" / "endpoint").write_text(text)
