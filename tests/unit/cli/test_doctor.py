"""`penstock doctor` names common problems with their fix."""

import asyncio
import json
import os
import resource
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.doctor import network as broker_checkups
from penstock.cli.doctor.machine import clock_finding, config_findings, data_findings, descriptor_finding
from penstock.cli.doctor.port_owner import Owner, descriptors_of, is_here, owner_of
from penstock.client.errors import ClientError, LoginFailed, NotABroker, Unreachable, Unsupported
from penstock.client.metadata import Broker
from penstock.model.findings import Finding
from tests.unit.cli.conftest import Penstock


def complaints(findings: Iterator[Finding]) -> dict[str, Finding]:
    return {each.check: each for each in findings if not each.is_well}


def test_a_healthy_directory(tmp_path: Path) -> None:
    assert "permission" not in complaints(data_findings(tmp_path / "not" / "there" / "yet"))


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # the superuser may do everything
    assert "may not write" in complaints(data_findings(tmp_path))["permission"].found


@pytest.mark.parametrize(("total", "free"), [(10**12, 10**6), (10**12, 2 * 10**10)])
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=total, free=free))
    assert "retention" in str(complaints(data_findings(tmp_path))["disk"].fix)


@pytest.mark.parametrize(
    ("content", "part"), [(b"penstock directory 99 2 0\n{}\n", "has format 99"), (b"", "cannot be read")]
)
def test_a_format_that_is_not_ours(tmp_path: Path, content: bytes, part: str) -> None:
    (tmp_path / "directory").write_bytes(content)
    assert part in complaints(data_findings(tmp_path))["format"].found


def test_few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (65536, 65536))
    assert descriptor_finding().is_well
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 65536))
    assert descriptor_finding().is_well, "a broker takes as many as it may"
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    assert "LimitNOFILE" in str(descriptor_finding().fix)


def test_a_clock_that_stands_before_the_release() -> None:
    assert "1970-01-01" in clock_finding(0).found
    assert not clock_finding(0).is_well


def test_a_config_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    assert "cannot read" in complaints(config_findings(path))["config"].found
    path.write_text("log.retension.ms=5\n")
    assert "log.retention.ms?" in complaints(config_findings(path))["config"].found
    path.write_text("num.partitions=5\n")
    assert not complaints(config_findings(path))
    path.write_text("super.users=User:admin\n")
    assert "everybody is one" in complaints(config_findings(path))["config"].found


def test_a_config_of_which_not_all_has_an_effect(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.io.threads=5\nlog.cleaner.threads=2\nnum.partitions=5\n")
    _, found = config_findings(path)
    assert found == Finding(
        "config",
        True,
        "2 of them have no effect, or not all of it: log.cleaner.threads (nothing is compacted yet); "
        "num.io.threads (one event loop serves all requests, with workers beside it)",
    )


@contextmanager
def stranger(answer: bytes) -> Iterator[str]:
    """Serves a port with fixed bytes that no broker would send."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            while True:
                try:
                    guest, _ = door.accept()
                except OSError:
                    return
                with guest:
                    guest.recv(4096)
                    guest.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{door.getsockname()[1]}"
        door.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.mark.parametrize(
    ("answer", "check", "found", "fix"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x46", "broker", "speaks TLS", "PLAINTEXT listener"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "port", "is an HTTP server", "stop it (kill {pid})"),
        (b"", "port", "(pid {pid})", "let the broker listen elsewhere"),
    ],
)
def test_somebody_else_on_the_port(penstock: Penstock, answer: bytes, check: str, found: str, fix: str) -> None:
    with stranger(answer) as address:
        result = penstock("doctor", "-b", address, "-o", "json")
    assert result.code == 1
    (row,) = [each for each in json.loads(result.out) if each["check"] == check]
    assert found.format(pid=os.getpid()) in row["found"]
    assert fix.format(pid=os.getpid()) in row["fix"]


def test_nobody_on_the_port(penstock: Penstock) -> None:
    with stranger(b"") as address:
        pass
    result = penstock("doctor", "-b", address)
    assert result.code == 1
    assert "→ start one with `penstock dev`" in result.out


def test_an_advertised_address_that_leads_nowhere() -> None:
    async def connection(_: int) -> None:
        raise Unreachable("no connection to kafka:29092: the name cannot be resolved")

    cluster: Any = SimpleNamespace(view=SimpleNamespace(brokers={1: Broker(1, "kafka", 29092)}), connection=connection)
    reached, (found,) = asyncio.run(broker_checkups._addresses(cluster, "localhost:9092"))
    assert not reached
    assert "sends clients to kafka:29092" in found.found
    assert "advertised.listeners to an address that clients reach, such as PLAINTEXT://localhost:9092" in str(found.fix)


def test_a_broker_and_a_client_with_no_version_in_common() -> None:
    def version_for(_: object) -> int:
        raise Unsupported("the broker serves Fetch 0 to 3, and we know 4 to 18")

    connection: Any = SimpleNamespace(version_for=version_for)
    assert "upgrade" in str(broker_checkups._age(connection).fix)


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        (NotABroker("far:9092 is an HTTP server"), "another program has the port"),
        (NotABroker("far:9092 speaks TLS"), "connect with TLS: -X security.protocol=SSL"),
        (Unreachable("far:9092 closed the connection at once"), "what the broker has logged"),
        (Unreachable("no connection to far:9092: nothing listens there"), "start one with `penstock dev`"),
        (LoginFailed("wrong password"), "has logged"),
    ],
)
def test_trouble_with_a_broker_on_another_machine(error: ClientError, fix: str) -> None:
    assert fix in str(broker_checkups.unreached("far:9092", error).fix)


def test_who_listens_is_told_as_far_as_we_may_know(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        owner = owner_of(port)
        assert owner is not None
        assert owner.pid == os.getpid()
        (tmp_path / "net").mkdir()
        (tmp_path / "net" / "tcp").write_text(Path("/proc/net/tcp").read_text())
        assert str(owner_of(port, tmp_path)) == "another user's program"
    assert owner_of(port) is None
    assert is_here("localhost")
    assert not is_here("192.0.2.1")
    assert not is_here("nowhere.invalid")


def test_a_broker_with_few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    assert descriptors_of(os.getpid()) == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert descriptors_of(2**30) is None
    monkeypatch.setattr(broker_checkups, "descriptors_of", lambda _: 256)
    (found,) = broker_checkups._descriptors(Owner(7, "penstock dev"))
    assert "penstock dev (pid 7), may open 256 files" in found.found
    monkeypatch.setattr(broker_checkups, "descriptors_of", lambda _: 65536)
    assert not broker_checkups._descriptors(Owner(7, "penstock dev"))
