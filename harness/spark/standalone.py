"""A Spark cluster of its own: one Master and some Workers, each a process, from the pyspark that pip installed.

    with StandaloneSpark(directory) as cluster:
        SparkSession.builder.master(cluster.url)...

The Workers start the executors, which inherit their environment: a source that can be imported here can be imported
there. Master and Workers may be killed one by one, and Workers restarted.
"""

import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

HOST = "127.0.0.1"
START_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 20.0
POLL_S = 0.05
LOG_TAIL_BYTES = 8 * 1024
SMALL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


class SparkFailed(Exception):
    """A process ended or did not become ready; the text is the end of its log."""


class StandaloneSpark:
    """See the module. Logs and the executors' files are below `directory`."""

    def __init__(
        self, directory: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g", java: str = SMALL_JAVA
    ) -> None:
        self._directory = directory
        self._java = java
        self._worker_options = ["--cores", str(cores), "--memory", memory, "--host", HOST]
        self._master_port, self._page_port = _free_ports(2)
        self._wanted = workers
        self._serial = 0
        self.url = f"spark://{HOST}:{self._master_port}"
        self.master: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts all processes and waits until every Worker is registered with the Master."""
        options = ["--host", HOST, "--port", str(self._master_port), "--webui-port", str(self._page_port)]
        self.master = self._run("master", "org.apache.spark.deploy.master.Master", *options)
        for _ in range(self._wanted):
            self.start_worker()
        self.wait_for_workers(self._wanted)

    def start_worker(self) -> subprocess.Popen[bytes]:
        """Starts one more Worker; does not wait until it is registered with the Master."""
        name = f"worker-{self._serial}"
        self._serial += 1
        options = [*self._worker_options, "--webui-port", "0", "--work-dir", str(self._directory / name), self.url]
        started = self._run(name, "org.apache.spark.deploy.worker.Worker", *options)
        self.workers.append(started)
        return started

    def kill_worker(self, worker: subprocess.Popen[bytes]) -> None:
        """Kills a Worker, as a crash would; its executors notice and exit, too."""
        self.workers.remove(worker)
        worker.kill()
        worker.wait()

    def wait_for_workers(self, count: int, timeout_s: float = START_TIMEOUT_S) -> None:
        """Waits until the Master counts this number of Workers as alive."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            for process in (self.master, *self.workers):
                if process is not None and process.poll() is not None:
                    raise SparkFailed(f"ended with {process.returncode}\n{self.log_tail()}")
            with contextlib.suppress(OSError, ValueError):  # before the Master is ready, another page answers
                if self.state()["aliveworkers"] == count:
                    return
            time.sleep(POLL_S)
        raise SparkFailed(f"not {count} workers after {timeout_s} s\n{self.log_tail()}")

    def state(self) -> dict[str, Any]:
        """The cluster state that the Master reports."""
        with urllib.request.urlopen(f"http://{HOST}:{self._page_port}/json/", timeout=STOP_TIMEOUT_S) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def executors(self) -> list[int]:
        """The process ids of all executors on our Workers."""
        parents = {worker.pid for worker in self.workers}
        return [pid for pid, parent, command in processes() if parent in parents and EXECUTOR in command]

    def stop(self) -> None:
        """Terminates all processes, and kills those that do not end in time."""
        processes = [*self.workers, *([] if self.master is None else [self.master])]
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.workers, self.master = [], None

    def log_tail(self) -> str:
        """The end of each log."""
        logs = sorted(self._directory.glob("*.log"))
        return "\n".join(f"{log.name}: {log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors='replace')}" for log in logs)

    def _run(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        self._directory.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(self._directory / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": self._java,
        }
        with (self._directory / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [str(spark_home() / "bin" / "spark-class"), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
            )


def spark_home() -> Path:
    """The folder in which pip installed Spark."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def processes() -> Sequence[tuple[int, int, bytes]]:
    """Id, parent id and command line of all processes."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            found.append((int(each.name), parent, (each / "cmdline").read_bytes()))
    return found


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
