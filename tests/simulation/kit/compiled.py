"""Makes a copy of this project in which the cores and their worlds are compiled: they run almost twice as fast.

    python -m tests.simulation.kit.compiled DIRECTORY
    cd DIRECTORY && PYTHONPATH=src:. python -m tests.simulation.controllers_on_quorum next 10000 --record

mypyc compiles the sources as they are committed, except for a few expressions in the worlds that it does not support
(`EDITS`). At the end some worlds run both compiled and interpreted, and their traces must be equal.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
CORES: Final = (
    "src/penstock/raft/*.py",
    "src/penstock/metadata/*.py",
    "src/penstock/replication/*.py",
    "src/penstock/server/loop/driver.py",
)
LEFT_OUT: Final = {
    "__init__",
    "changes",
    "cluster_commands",
    "commands",
    "configs",
    "copying",
    "creation",
    "declare",
    "deletion",
    "features",
    "frames",
    "growth",
    "metadata/events",
    "names",
    "reassignment",
    "records",
    "snapshot",
}
"""Modules of the cores that are not compiled: they seldom run, or a metaclass makes their classes."""
WORLDS: Final = (
    "controller_core/brokers",
    "controller_core/checks",
    "controller_core/faults",
    "controller_core/operators",
    "controller_core/replicas",
    "controller_core/world",
    "controllers_on_quorum/faults",
    "controllers_on_quorum/world",
    "kit/heap_port",
    "kit/timeline",
    "raft_core/checks",
    "raft_core/disk",
    "raft_core/faults",
    "raft_core/world",
    "replication_core/checks",
    "replication_core/controller",
    "replication_core/disk",
    "replication_core/faults",
    "replication_core/world",
)
EDITS: Final = (
    ("controllers_on_quorum/faults", "    _world: ClusterWorld\n\n", ""),
    ("controllers_on_quorum/world", '    world: "ClusterWorld"\n    machine: Machine\n\n', ""),
    ("raft_core/world", "        self.world = world\n", "        self.world: Any = world\n"),
    ("raft_core/world", "        self.machine = Machine(self)\n", "        self.machine: Any = Machine(self)\n"),
    ("raft_core/faults", "        self._world = world\n", "        self._world: Any = world\n"),
    ("raft_core/faults", "from typing import Final", "from typing import Any, Final"),
    (
        "controller_core/checks",
        "if broker_id in (*partition.isr, *partition.eligible_leader_replicas):",
        "if broker_id in partition.isr + partition.eligible_leader_replicas:",
    ),
)
BUILD: Final = """
import sys
from mypyc.build import mypycify
from setuptools import setup

options = ["--ignore-missing-imports", "--explicit-package-bases", "--follow-imports=silent"]
setup(name="compiled", packages=[], script_args=["build"], ext_modules=mypycify(sys.argv[1:] + options, opt_level="1"))
"""
TRACES: Final = """
import sys
sys.path.insert(0, "")
from tests.simulation.controllers_on_quorum import faults as cluster_faults
from tests.simulation.replication_core import faults as replication_faults

print([world.run_seed(seed).trace_hash for world in (cluster_faults, replication_faults) for seed in range(5)])
"""


def build(directory: Path) -> None:
    """Makes the copy and compiles it; takes a few minutes."""
    subprocess.run(["git", "clone", "-q", str(ROOT), str(directory)], check=True)
    for name, old, new in EDITS:
        path = directory / "tests" / "simulation" / f"{name}.py"
        text = path.read_text(encoding="utf-8")
        if old not in text:
            raise SystemExit(f"{path.name} has changed: {old.strip()!r} is not there any more, look at EDITS")
        path.write_text(text.replace(old, new), encoding="utf-8")
    cores = [path.relative_to(directory) for pattern in CORES for path in sorted(directory.glob(pattern))]
    files = [str(path) for path in cores if not LEFT_OUT & {path.stem, f"{path.parent.name}/{path.stem}"}]
    files += [f"tests/simulation/{name}.py" for name in WORLDS]
    project = directory / "pyproject.toml"
    project.rename(directory / "aside")  # setuptools must not build the project itself
    environment = {"MYPYPATH": "src:.", "CFLAGS": "-O1", "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-c", BUILD, *files], cwd=directory, env=environment, check=True)
    for path in directory.glob("build/lib.*/**/*.so"):
        place = Path(*path.relative_to(directory).parts[2:])
        path.rename(directory / ("src" if place.parts[0] == "penstock" else "") / place)
    subprocess.run(["git", "checkout", "-q", "."], cwd=directory, check=True)
    (directory / "aside").unlink()


def traces(directory: Path) -> str:
    """The trace hashes of a few worlds."""
    environment = {"PYTHONPATH": "src:.", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", TRACES]
    done = subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True, text=True)
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the copy is to be; it must not exist yet")
    directory = parser.parse_args().directory.absolute()
    build(directory)
    if traces(directory) != traces(ROOT):
        raise SystemExit("the compiled worlds are not those of the interpreter: do not use them")
    print(f"cd {directory} && PYTHONPATH=src:. python -m tests.simulation.controllers_on_quorum next 10000 --record")


if __name__ == "__main__":
    main()
