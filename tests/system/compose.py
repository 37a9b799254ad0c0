"""A compose file without a container engine: its services as processes, started from the fields of the file.

Every service has a network namespace with its own address, and finds the others by their names. Published ports are
forwarded from the namespace of the router, which stands for the machine: enter it (`Composed.network`) to be a program
beside the containers. A volume is a folder, and paths in containers are replaced by those of the folders. Our image is
what deploy/Containerfile says: its variables, its ENTRYPOINT and CMD. What a field means that is not handled here does
not go unnoticed: only known fields may be there.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

from tests.system.commands import ENVIRONMENT, PENSTOCK
from tests.system.containerfile import DEPLOY, last, variables
from tests.system.network import Network
from tests.system.victim import ROOT

OURS: Final = "penstock"
ISOLATION: Final = {"build", "restart", "read_only", "cap_drop", "security_opt", "ulimits", "depends_on"}
"""Fields that change nothing in what a process does here."""
HANDLED: Final = {"image", "command", "environment", "ports", "volumes", "healthcheck", "stop_grace_period"}
HEALTH_S: Final = 120.0
NETNS: Final = Path("/etc/netns")
"""`ip netns exec` puts the files of a namespace's folder here in the place of those of /etc."""

Programs = Mapping[str, Callable[[], str]]


def services_of(path: Path) -> dict[str, dict[str, Any]]:
    """The services of a compose file."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text())["services"]
    for name, service in found.items():
        unknown = service.keys() - ISOLATION - HANDLED
        assert not unknown, f"{name}: this field is not handled: {unknown}"
    return found


class Composed:
    """The services of a file while the context is entered."""

    def __init__(self, path: Path, directory: Path, programs: Programs, others: Sequence[str] = ()) -> None:
        """`programs` find the program of an image; a service of an image without one has a namespace only.

        `others` are further containers on the same network, in which commands can run.
        """
        self.services = services_of(path)
        self._folder = path.parent
        self._directory = directory
        self._programs = programs
        self._ids = {name: number for number, name in enumerate([*self.services, *others], 1)}
        self.network = Network(f"pc{os.getpid()}", self._ids.values())
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._stack.enter_context(self.network)
            self._name_hosts()
            for name in self.services:
                self._start(name)
            self._forward()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def prefix(self, name: str) -> list[str]:
        """The command prefix that runs a command in the place of a container."""
        return self.network.prefix(self._ids[name])

    def log(self, name: str) -> str:
        """What a service has printed."""
        return (self._directory / name / "log").read_text(errors="replace")

    def is_healthy(self, name: str) -> bool:
        """Runs the health check of a service."""
        kind, *command = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        line = [*self.prefix(name), *self._command_line(name, command)]
        home, inside = self._directory / name, self._environment(name)
        done = subprocess.run(line, cwd=home, env=inside, capture_output=True, timeout=HEALTH_S, check=False)
        return done.returncode == 0

    def stop(self) -> dict[str, int]:
        """Stops all services as an engine does, and returns their exit codes."""
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        return {name: process.wait(HEALTH_S) for name, process in self.running.items()}

    # --- starting

    def _name_hosts(self) -> None:
        hosts = "".join(f"{self.network.address(number)} {name}\n" for name, number in self._ids.items())
        for number in self._ids.values():
            folder = NETNS / self.network.namespace(number)
            folder.mkdir(parents=True)
            self._stack.callback(shutil.rmtree, folder)
            (folder / "hosts").write_text(f"127.0.0.1 localhost\n{hosts}")

    def _start(self, name: str) -> None:
        service = self.services[name]
        if service["image"] == OURS:
            command = self._command_line(name, [*_words("ENTRYPOINT"), *_words("CMD")])
            assert "command" not in service
        elif (image := service["image"].partition(":")[0]) in self._programs:
            command = [self._programs[image](), *(self._here(name, word) for word in service["command"])]
        else:
            return
        home = self._directory / name
        home.mkdir()
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                [*self.prefix(name), *command],
                cwd=home,
                env=self._environment(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.running[name] = process
        self._stack.callback(_end, process)

    def _forward(self) -> None:
        pairs = []
        for name, number in self._ids.items():
            for published in self.services.get(name, {}).get("ports", ()):
                host, outer, inner = published.split(":")
                pairs.append(f"{host}:{outer}={self.network.address(number)}:{inner}")
        process = subprocess.Popen(
            [*self.network.prefix("router"), sys.executable, "-m", "tests.system.port_forwarder", *pairs],
            env=ENVIRONMENT | {"PYTHONPATH": _paths()},
            stdout=subprocess.PIPE,
        )
        self._stack.callback(_end, process)
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == b"bound\n"

    # --- fields

    def _command_line(self, name: str, command: Sequence[str]) -> list[str]:
        program, *arguments = command
        assert program == OURS, program
        return [*PENSTOCK, *(self._here(name, each) for each in arguments)]

    def _environment(self, name: str) -> dict[str, str]:
        service = self.services[name]
        inside = variables() if service["image"] == OURS else {}
        inside |= service.get("environment", {})
        here = {key: self._here(name, value) for key, value in inside.items() if key != "PATH"}
        return ENVIRONMENT | here | {"PYTHONPATH": _paths()}

    def _here(self, name: str, text: str) -> str:
        """The text with the paths of the volumes' folders in the place of those in the container."""
        for volume in self.services[name].get("volumes", ()):
            source, target = volume.split(":")[:2]
            folder = self._folder / source if source.startswith(".") else self._directory / "volumes" / source
            if not source.startswith("."):
                folder.mkdir(parents=True, exist_ok=True)
            text = re.sub(rf"(?<![\w/-]){re.escape(target)}(?![\w-])", str(folder), text)
        return text


def _words(instruction: str) -> list[str]:
    found: list[str] = yaml.safe_load(last(instruction))
    return found


def _paths() -> str:
    return f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


COMPOSE_CLUSTER: Final = DEPLOY / "compose-cluster.yaml"
