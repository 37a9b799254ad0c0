"""Ten common problems, each planted for real: `penstock doctor` names them all, and the remedy."""

import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.log import checked
from penstock.log.directory import FORMAT_VERSION
from tests.system.commands import ENVIRONMENT, PENSTOCK, Shell, a_broker

AS_ANYBODY = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
"""Root may read and write everything; without these two capabilities, permissions apply to it too."""
HOUR_S = 3600
SHIFTED_CLOCK = """
import os, time
shift_s = int(os.environ["CLOCK_SHIFT_S"])
wall, wall_ns = time.time, time.time_ns
time.time = lambda: wall() + shift_s
time.time_ns = lambda: wall_ns() + shift_s * 10**9
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def complaints(done: "subprocess.CompletedProcess[bytes]") -> dict[str, dict[str, Any]]:
    """Problems by check; the exit code must agree."""
    rows = [row for row in json.loads(done.stdout) if not row["is_well"]]
    assert done.returncode == int(bool(rows)), done.stderr.decode()
    assert all(row["fix"] for row in rows)
    return {row["check"]: row for row in rows}


def diagnose(shell: Shell, *arguments: str, **how: Any) -> dict[str, dict[str, Any]]:
    return complaints(shell.run("doctor", "-o", "json", *arguments, **how))


def told(row: dict[str, Any], found: str, fix: str) -> None:
    assert found in row["found"]
    assert fix in row["fix"]


def a_file(directory: Path, **settings: str) -> str:
    given = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "data"} | settings
    (directory / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    return "server.properties"


def in_own_mounts(script: str) -> tuple[str, ...]:
    """A prefix that gives a command private mounts, which vanish with it."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs to mount a file system, which takes root")
    return ("unshare", "-m", "sh", "-ec", f'{script}; exec "$0" "$@"')


def enough(path: Path) -> None:
    room = shutil.disk_usage(path)
    if room.free < 2 * 1024**3 or room.free / room.total < 0.06:
        pytest.skip("this machine is short of disk, and the doctor would be right to say so")


def test_nothing_is_wrong(shell: Shell) -> None:
    enough(shell.directory)
    with a_broker(shell.directory, "dev", "--port", "0"):
        shell("produce", "orders", given=b"one\n")
        done = shell.run("doctor")
    assert done.returncode == 0, done.stdout.decode()
    assert "WRONG" not in done.stdout.decode()
    assert shell.run("doctor", "--offline").returncode == 0
    told(diagnose(shell)["broker"], "nothing listens there", "start one with `penstock dev`")


def test_1_the_port_is_taken(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        file = a_file(shell.directory, listeners=f"PLAINTEXT://127.0.0.1:{port}")
        row = diagnose(shell, "-c", file)["port"]
        told(row, f"127.0.0.1:{port} is taken by", f"stop it (kill {os.getpid()}), or let the broker listen elsewhere")
        assert f"Cannot listen on 127.0.0.1:{port}" in shell.fails("server", "-c", file)


def test_2_the_disk_is_full(shell: Shell) -> None:
    data = shell.directory / "data"
    data.mkdir()
    small = in_own_mounts(f"mount -t tmpfs -o size=1m none {data}; cat /dev/zero > {data}/ballast 2>&- || true")
    told(diagnose(shell, "--offline", "--data", "data", prefix=small)["disk"], "only 0.0 GB (0 %) free", "retention")


def test_2_the_disk_of_a_broker_is_full(shell: Shell) -> None:
    enough(shell.directory)
    data = shell.directory / "data"
    data.mkdir()
    small = in_own_mounts(f"mount -t tmpfs -o size=64m none {data}")
    with a_broker(shell.directory, "dev", "--port", "0", "--data", "data", prefix=small, complains=True) as broker:
        ballast = Path(f"/proc/{broker.process.pid}/root{data}/ballast")
        filled = subprocess.run(["dd", "if=/dev/zero", f"of={ballast}", "bs=1M"], capture_output=True, check=False)
        assert b"No space left" in filled.stderr
        told(diagnose(shell, "-b", broker.address)["disk"], "only 0.0 GB free at data of broker 1", "delete topics")
        ballast.unlink()


def test_3_there_is_no_permission_to_write(shell: Shell) -> None:
    data = shell.directory / "data"
    data.mkdir(mode=0o500)
    row = diagnose(shell, "--offline", "--data", "data", prefix=AS_ANYBODY)["permission"]
    told(row, "this user may not write to data", "chown")


def test_3_the_disk_is_mounted_read_only(shell: Shell) -> None:
    data = shell.directory / "data"
    data.mkdir()
    frozen = in_own_mounts(f"mount --bind {data} {data}; mount -o remount,ro,bind {data}")
    row = diagnose(shell, "--offline", "--data", "data", prefix=frozen)["permission"]
    told(row, "data lies on a file system that is mounted read-only", "remount,rw")


def test_4_clients_are_sent_to_a_wrong_address(shell: Shell) -> None:
    file = a_file(shell.directory, **{"advertised.listeners": "PLAINTEXT://127.0.0.1:1"})
    with a_broker(shell.directory, "server", "-c", file) as broker:
        found = diagnose(shell, "-b", broker.address, "--data", "data")
    told(found["advertised"], "broker 1 sends clients to 127.0.0.1:1", f"such as PLAINTEXT://{broker.address}")


def test_5_a_client_speaks_tls_to_the_plain_port(shell: Shell) -> None:
    with a_broker(shell.directory, "dev", "--port", "0", complains=True) as broker:
        host, _, port = broker.address.rpartition(":")
        encrypted = ssl.create_default_context()
        with socket.create_connection((host, int(port))) as plain, pytest.raises(ssl.SSLError):
            encrypted.wrap_socket(plain, server_hostname=host)
        row = diagnose(shell)["clients"]
        assert "began with a TLS handshake" in broker.log
    told(row, "began with a TLS handshake", "set security.protocol=PLAINTEXT")


@contextmanager
def a_tls_server(directory: Path) -> Iterator[str]:
    """A TLS server port, as a broker with another listener would have it."""
    make = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -days 2 -subj /CN=localhost"
    if subprocess.run(make.split(" "), cwd=directory, capture_output=True, check=False).returncode:
        pytest.skip("needs openssl to make a certificate")
    serve = "openssl s_server -accept 127.0.0.1:0 -cert cert -key key"
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    server = subprocess.Popen(serve.split(" "), cwd=directory, stdin=pipe, stdout=pipe, stderr=nowhere)
    assert server.stdout is not None
    with server:
        try:
            lines = (line.decode() for line in server.stdout)
            yield next(line.split()[1] for line in lines if line.startswith("ACCEPT"))
        finally:
            server.kill()


def test_5_the_doctor_itself_meets_tls(shell: Shell) -> None:
    with a_tls_server(shell.directory) as address:
        told(diagnose(shell, "-b", address)["broker"], "speaks TLS", "use the broker's PLAINTEXT listener")


def a_clock(directory: Path, shift_s: int) -> dict[str, str]:
    """An environment in which every Python has a shifted clock."""
    (directory / "sitecustomize.py").write_text(SHIFTED_CLOCK)
    path = os.pathsep.join(filter(None, (str(directory), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path, "CLOCK_SHIFT_S": str(shift_s)}


@pytest.mark.parametrize(("shift_s", "way"), [(HOUR_S, "3600 s ahead of"), (-HOUR_S, "3600 s behind")])
def test_6_a_clock_is_off(shell: Shell, shift_s: int, way: str) -> None:
    shifted = a_clock(shell.directory, shift_s)
    with a_broker(shell.directory, "dev", "--port", "0", environment=shifted):
        found = diagnose(shell)["clocks"]
    told(found, f"the clock of broker 1 is {way} this machine's", "let NTP set both clocks")


def test_6_this_machine_believes_in_the_past(shell: Shell) -> None:
    shifted = a_clock(shell.directory, -int(time.time()))
    told(diagnose(shell, "--offline", environment=shifted)["clock"], "it is not 1970-01-01", "timedatectl")


def test_7_there_are_too_few_descriptors(shell: Shell) -> None:
    few = ("sh", "-ec", 'ulimit -n 256; exec "$0" "$@"')
    told(diagnose(shell, "--offline", prefix=few)["descriptors"], "may open 256 files only", "LimitNOFILE=65536")
    with a_broker(shell.directory, "dev", "--port", "0", prefix=few) as broker:
        row = diagnose(shell)["descriptors"]
    told(row, f"(pid {broker.process.pid}), may open 256 files only", "LimitNOFILE=65536")


def test_7_a_low_soft_limit_is_the_brokers_own_business(shell: Shell) -> None:
    low = ("sh", "-ec", 'ulimit -Sn 256; exec "$0" "$@"')
    with a_broker(shell.directory, "dev", "--port", "0", prefix=low):
        assert "descriptors" not in diagnose(shell, prefix=low)


def test_8_the_file_cannot_be_read(shell: Shell) -> None:
    path = shell.directory / a_file(shell.directory)
    assert "config" not in diagnose(shell, "--offline", "-c", path.name)
    path.chmod(0)
    row = diagnose(shell, "--offline", "-c", path.name, prefix=AS_ANYBODY)["config"]
    told(row, "cannot read server.properties: Permission denied", "chmod u+r server.properties")
    path.chmod(0o600)
    path.write_bytes(b"\x7fELF\xff\xfe")
    told(diagnose(shell, "--offline", "-c", path.name)["config"], "is not a text in UTF-8", "must be a text")
    path.write_text("log.retension.ms=5\n")
    told(diagnose(shell, "--offline", "-c", path.name)["config"], "did you mean log.retention.ms?", f"edit {path.name}")


def test_9_the_data_are_of_a_newer_format(shell: Shell) -> None:
    file = a_file(shell.directory)
    with a_broker(shell.directory, "server", "-c", file):
        pass
    identity = shell.directory / "data" / "directory"
    value = checked.decode("directory", FORMAT_VERSION, identity.read_bytes(), "directory").value
    identity.write_bytes(checked.encode("directory", FORMAT_VERSION + 1, value))
    row = diagnose(shell, "--offline", "-c", file)["format"]
    told(row, f"data has format {FORMAT_VERSION + 1}, and this version knows {FORMAT_VERSION}", "upgrade penstock")
    assert "written by a newer Penstock" in shell.fails("server", "-c", file)


def test_10_a_client_is_too_old(shell: Shell) -> None:
    """Produce 0, as clients before 0.11 send it: the connection is closed, and the client cannot report why."""
    with a_broker(shell.directory, "dev", "--port", "0", complains=True) as broker:
        host, _, port = broker.address.rpartition(":")
        request = struct.pack(">hhih", 0, 0, 1, 3) + b"old" + struct.pack(">hii", 1, 1000, 0)
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            assert connection.recv(1) == b""
        row = diagnose(shell)["clients"]
        assert "upgrade the client" in broker.log
    told(row, "it asked for Produce version 0, but 3 to 13 are served", "upgrade that client")


def test_advice_is_for_people_too(shell: Shell) -> None:
    done = subprocess.run(
        [*PENSTOCK, "doctor", "-b", "127.0.0.1:1"],
        cwd=shell.directory,
        env=ENVIRONMENT,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert "WRONG  broker       no connection to 127.0.0.1:1" in done.stdout.decode()
    assert "→ start one with `penstock dev`" in done.stdout.decode()
