"""A node in a process of its own, and its memory use."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class NodeProcess:
    """A running node."""

    def __init__(self, process: "subprocess.Popen[bytes]", address: tuple[str, int], log_path: Path) -> None:
        self.process = process
        self.address = address
        self.log_path = log_path

    @property
    def resident_bytes(self) -> int:
        """Resident memory."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE_BYTES

    @property
    def log(self) -> str:
        """Its log output."""
        return self.log_path.read_text()


@contextmanager
def a_node(directory: Path) -> Iterator[NodeProcess]:
    """Starts a node, and stops it at the end; it must exit with 0."""
    log_path = directory / "log"
    with log_path.open("wb") as log:
        command = [sys.executable, "-m", "tests.system.serve", str(directory / "data")]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            host, _, port = process.stdout.readline().decode().strip().rpartition(":")
            assert port, log_path.read_text()
            yield NodeProcess(process, (host, int(port)), log_path)
        finally:
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
    assert process.returncode == 0, log_path.read_text()


ECHO = """
import socket
place = socket.create_server(("127.0.0.1", 0))
print(place.getsockname()[1], flush=True)
connection, _ = place.accept()
while data := connection.recv(65536):
    connection.sendall(data)
"""


@contextmanager
def an_echo() -> Iterator[socket.socket]:
    """A connection to a process that only echoes: its latency is the baseline of the machine."""
    with subprocess.Popen([sys.executable, "-c", ECHO], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with socket.create_connection(("127.0.0.1", int(process.stdout.readline()))) as connection:
            yield connection
