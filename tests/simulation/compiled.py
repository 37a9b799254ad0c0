"""A copy of this project in which the cores and their worlds are compiled: they run almost twice as fast.

    python -m tests.simulation.compiled DIRECTORY
    cd DIRECTORY && PYTHONPATH=src:. python -m tests.simulation.cluster next 10000 --record

mypyc compiles the sources as they are committed, but for a few words in the worlds that it cannot take (`EDITS`). At
the end some worlds are run both ways, and their traces must be equal.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CORES: Final = ("src/penstock/raft/*.py", "src/penstock/metadata/*.py", "src/penstock/replication/*.py")
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
    "names",
    "reassignment",
    "records",
    "snapshot",
}
"""Of the cores: what is seldom run, or made by a metaclass."""
WORLDS: Final = (
    "cluster_faults",
    "cluster_world",
    "controller_brokers",
    "controller_checks",
    "controller_faults",
    "controller_people",
    "controller_replicas",
    "controller_world",
    "raft_checks",
    "raft_disk",
    "raft_faults",
    "raft_world",
    "replication_checks",
    "replication_controller",
    "replication_disk",
    "replication_faults",
    "replication_world",
)
EDITS: Final = (
    ("cluster_faults", "    _world: ClusterWorld\n\n", ""),
    ("cluster_world", '    world: "ClusterWorld"\n    machine: Machine\n\n', ""),
    ("raft_world", "        self.world = world\n", "        self.world: Any = world\n"),
    ("raft_world", "        self.machine = Machine(self)\n", "        self.machine: Any = Machine(self)\n"),
    ("raft_faults", "        self._world = world\n", "        self._world: Any = world\n"),
    ("raft_faults", "from typing import Final", "from typing import Any, Final"),
    (
        "controller_checks",
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
from tests.simulation import cluster_faults, replication_faults

print([world.run_seed(seed).trace_hash for world in (cluster_faults, replication_faults) for seed in range(5)])
"""


def build(directory: Path) -> None:
    """Makes the copy and compiles it; a few minutes."""
    subprocess.run(["git", "clone", "-q", str(ROOT), str(directory)], check=True)
    for name, old, new in EDITS:
        path = directory / "tests" / "simulation" / f"{name}.py"
        text = path.read_text(encoding="utf-8")
        if old not in text:
            raise SystemExit(f"{path.name} has changed: {old.strip()!r} is not there any more, look at EDITS")
        path.write_text(text.replace(old, new), encoding="utf-8")
    cores = [path.relative_to(directory) for pattern in CORES for path in sorted(directory.glob(pattern))]
    files = [str(path) for path in cores if path.stem not in LEFT_OUT]
    files += [f"tests/simulation/{name}.py" for name in WORLDS]
    project = directory / "pyproject.toml"
    project.rename(directory / "aside")  # it is not this that setuptools is to build
    environment = {"MYPYPATH": "src:.", "CFLAGS": "-O1", "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-c", BUILD, *files], cwd=directory, env=environment, check=True)
    for path in directory.glob("build/lib.*/**/*.so"):
        place = Path(*path.relative_to(directory).parts[2:])
        path.rename(directory / ("src" if place.parts[0] == "penstock" else "") / place)
    subprocess.run(["git", "checkout", "-q", "."], cwd=directory, check=True)
    (directory / "aside").unlink()


def traces(directory: Path) -> str:
    """What happens in a few worlds."""
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
    print(f"cd {directory} && PYTHONPATH=src:. python -m tests.simulation.cluster next 10000 --record")


if __name__ == "__main__":
    main()
