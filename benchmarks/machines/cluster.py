"""The nodes of a cluster on several machines, started, sampled and stopped through shells.

Invariants: a process is signalled only if its command line names our directory, and a directory is removed only if
this run made it.
"""

import json
import secrets
import shlex
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from benchmarks.machines.inventory import Inventory, Machine, Node, properties_of
from benchmarks.machines.shells import Failed, Shell, shell_of

T = TypeVar("T")

UP_S = 120.0
STOP_S = 30
MARK = "made-by-penstock-machines"


@dataclass(frozen=True, slots=True)
class Sample:
    """Resources that the brokers of one machine have used so far."""

    cpu_s: float
    memory_mb: float
    disk_mb: float


class Cluster:
    """All nodes of an inventory."""

    def __init__(self, inventory: Inventory, shells: dict[str, Shell] | None = None) -> None:
        self.inventory = inventory
        self.shells = shells or {machine.name: shell_of(machine) for machine in inventory.machines}
        self._nodes = inventory.nodes()
        self._run = secrets.token_hex(8)
        self._is_ours = f'[ "$(cat {shlex.quote(inventory.directory)}/{MARK} 2>/dev/null)" = {self._run} ]'

    # --- machines -------------------------------------------------------------------------------------------------

    def on_all(self, work: Callable[[Machine, Shell], T], machines: list[Machine] | None = None) -> dict[str, T]:
        """Calls `work` for several machines concurrently."""
        wanted = list(self.inventory.machines) if machines is None else machines
        with ThreadPoolExecutor(len(wanted)) as threads:
            found = threads.map(lambda machine: work(machine, self.shells[machine.name]), wanted)
            return dict(zip([machine.name for machine in wanted], found, strict=True))

    @property
    def with_brokers(self) -> list[Machine]:
        return [machine for machine in self.inventory.machines if machine.brokers]

    def penstock(self, shell: Shell, *arguments: str, timeout_s: float = UP_S) -> str:
        """Runs the `penstock` command on a machine."""
        return shell.run(f"{self.inventory.command} {shlex.join(arguments)}", timeout_s=timeout_s)

    def versions(self) -> dict[str, str]:
        """The versions of all machines; fails before anything is started if one is unreachable or lacks penstock."""
        return self.on_all(lambda _machine, shell: self.penstock(shell, "--version").strip())

    # --- nodes ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts all nodes, and waits until the cluster is healthy."""
        for machine in self.with_brokers:  # sequentially: several of them may be one machine
            self._make_directory(machine, self.shells[machine.name])
        for node in self._nodes:
            self._start(node, self.shells[node.machine.name])
        first = self.shells[self.with_brokers[0].name]
        try:
            self.penstock(
                first,
                *("cluster", "health", "-b", self.inventory.bootstrap, "--wait", str(UP_S)),
                timeout_s=UP_S + STOP_S,
            )
        except Failed as error:
            words = self.on_all(lambda machine, shell: shell.run(self._last_words(machine)), self.with_brokers)
            raise Failed(f"{error}; the last words of the nodes: {words}") from None

    def _home(self, machine: Machine) -> str:
        return shlex.quote(self.inventory.home(machine))

    def _make_directory(self, machine: Machine, shell: Shell) -> str:
        directory = shlex.quote(self.inventory.directory)
        return shell.run(
            f"if [ -e {directory} ] && ! {self._is_ours}; then echo '{self.inventory.directory} is there already: "
            f"remove it, or name another directory' >&2; exit 1; fi; "
            f"mkdir -p {self._home(machine)}; echo {self._run} > {directory}/{MARK}"
        )

    def _start(self, node: Node, shell: Shell) -> None:
        home = f"{self._home(node.machine)}/node-{node.node_id}"
        shell.run(
            f"mkdir -p {home}; cat > {home}/server.properties; "
            f"setsid nohup {self.inventory.command} server --config {home}/server.properties "
            f"--allow-plaintext-beyond-loopback > {home}/log 2>&1 < /dev/null & echo $! > {home}/pid",
            given=properties_of(node, self._nodes, self.inventory),
        )

    def _last_words(self, machine: Machine) -> str:
        return f"tail -q -n 2 {self._home(machine)}/node-*/log"

    def sample(self) -> dict[str, Sample]:
        """Resources that the brokers of every machine have used so far."""
        return self.on_all(self._sample, self.with_brokers)

    def _sample(self, machine: Machine, shell: Shell) -> Sample:
        directory = self._home(machine)
        said = shell.run(
            f"getconf CLK_TCK; du -sm {directory} | cut -f1; for pid in $(cat {directory}/node-*/pid); do "
            "sed 's/.*) //' /proc/$pid/stat | cut -d' ' -f12,13; grep VmRSS /proc/$pid/status | tr -dc 0-9; echo; done"
        )
        ticks_per_s, disk_mb, *rest = said.split()
        if len(rest) != 3 * machine.brokers:
            raise Failed(f"{machine.name}: not all brokers run any more")
        used = sum(int(each) for at, each in enumerate(rest) if at % 3 < 2)
        memory_kib = sum(int(each) for at, each in enumerate(rest) if at % 3 == 2)
        return Sample(used / int(ticks_per_s), memory_kib * 1024 / 1e6, float(disk_mb))

    def stop(self) -> None:
        """Stops all nodes, and removes their files."""
        self.on_all(self._stop, self.with_brokers)

    def _stop(self, machine: Machine, shell: Shell) -> str:
        directory, home = shlex.quote(self.inventory.directory), self._home(machine)
        runs = f"grep -qsF {home} /proc/$pid/cmdline"
        return shell.run(
            f"{self._is_ours} || exit 0; pids=$(cat {home}/node-*/pid 2>/dev/null || true); "
            f"for pid in $pids; do {runs} && kill $pid || true; done; "
            f"for pid in $pids; do for _ in $(seq {10 * STOP_S}); do {runs} || break; sleep 0.1; done; "
            f"{runs} && kill -9 $pid || true; done; rm -rf {home}; "
            f'[ -n "$(ls {directory} 2>/dev/null | grep -v {MARK})" ] || rm -rf {directory}',
            timeout_s=2 * STOP_S + 10,
        )

    # --- loads ----------------------------------------------------------------------------------------------------

    def make_topic(self, name: str) -> None:
        topic = self.inventory.topic
        self.penstock(
            self.shells[self.with_brokers[0].name],
            *("topic", "create", name, "-b", self.inventory.bootstrap, "-p", str(topic.partitions)),
            *("-r", str(topic.replicas), "-c", f"durability={topic.durability}"),
        )

    def load(self, kind: str, topic: str) -> list[tuple[str, dict[str, Any]]]:
        """Runs all generators at once; returns each one's machine and the figures of its `penstock bench`."""
        load = self.inventory.load
        own = ["--record-bytes", str(load.record_bytes), "--batch-bytes", str(load.batch_bytes)]
        if kind == "produce":
            own += ["--connections", str(load.connections), "--in-flight", str(load.in_flight), "--yes"]
        arguments = ("bench", kind, topic, "-b", self.inventory.bootstrap, "-s", str(load.seconds), *own, "-o", "json")
        wanted = [machine for machine in self.inventory.machines for _ in range(machine.generators)]
        with ThreadPoolExecutor(len(wanted)) as threads:
            told = threads.map(
                lambda machine: self.penstock(self.shells[machine.name], *arguments, timeout_s=load.seconds + UP_S),
                wanted,
            )
            return [(machine.name, json.loads(text)) for machine, text in zip(wanted, told, strict=True)]
