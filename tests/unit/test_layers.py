"""The rules of layers, purity and import cycles hold, and the check detects each violation."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def lint_imports(checkout: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def plant(checkout: Path, module: str, line: str) -> None:
    path = checkout / "src" / "penstock" / module
    path.write_text(path.read_text() + f"\n{line}\n")


def test_the_contracts_hold(checkout: Path) -> None:
    result = lint_imports(checkout)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        ("wire/varint.py", "import time", "Purity"),
        ("records/header.py", "import asyncio", "Purity"),
        ("model/limits.py", "from os import getenv", "Purity"),
        ("raft/raft.py", "import random", "Purity"),
        ("coordinator/groups.py", "import time", "Purity"),
        ("coordinator/groups.py", "from penstock.replication import leader", "Layers"),
        ("raft/raft.py", "from penstock.log import epochs", "Layers"),
        ("model/limits.py", "from penstock.wire import varint", "Layers"),
        ("records/header.py", "from penstock.wire import varint", "Layers"),
        ("cli/topic/command.py", "from penstock.server import settings", "Tools"),
        ("spark/plan.py", "from penstock.server import settings", "Spark"),
        ("server/partitions/partitions.py", "from penstock.server import node", "No circles"),
        ("server/loop/timing.py", "from penstock.server.handlers import produce", "No circles"),
        ("metadata/image.py", "def late() -> None:\n    from penstock.metadata import draft", "No circles"),
    ],
)
def test_a_planted_import_turns_them_red(checkout: Path, module: str, line: str, broken: str) -> None:
    plant(checkout, module, line)
    result = lint_imports(checkout)
    assert result.returncode != 0
    assert any(broken in row and "BROKEN" in row for row in result.stdout.splitlines()), result.stdout


def test_a_room_without_a_place_turns_them_red(checkout: Path) -> None:
    room = checkout / "src" / "penstock" / "attic"
    room.mkdir()
    (room / "__init__.py").write_text('"""A room that nobody gave a place."""\n')
    assert lint_imports(checkout).returncode != 0
