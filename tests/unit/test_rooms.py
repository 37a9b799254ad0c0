"""Rooms can be found: few files per folder, a first line that says what is in it, and a table of where things live."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "penstock"
ROOMS = (PACKAGE / "server", PACKAGE / "cli", PACKAGE / "client", ROOT / "tests" / "simulation")
FILES_MAX = 15
STEPS_MAX = 2
"""Folders that somebody opens below `src/penstock` until the file is seen."""
SOUGHT = {
    "an ISR change": "ISR changes",
    "a fetch that waits": "fetch, or one without a session, that waits",
    "a rebalance": "Rebalance",
    "a torn tail": "torn end",
    "a fenced broker": "broker",
    "a fetch session": "fetch sessions",
    "a group's lag": "lag",
    "a Delta commit": "Commits",
}
"""What an engineer looks for, and words of the docstring of the first file named for it."""


def folders(room: Path) -> Iterator[Path]:
    """A room and the folders in it."""
    yield room
    for path in sorted(room.rglob("*")):
        if path.is_dir() and path.name != "__pycache__":
            yield path


def description(source: str) -> str:
    return ast.get_docstring(ast.parse(source)) or ""


def faults(folder: Path) -> list[str]:
    """What makes a folder hard to find one's way in."""
    found = []
    files = [path for path in folder.iterdir() if path.suffix == ".py"]
    if len(files) > FILES_MAX:
        found.append(f"{len(files)} files")
    opening = folder / "__init__.py"
    first, _, rest = description(opening.read_text() if opening.exists() else "").partition("\n")
    if not first.endswith((".", "`")) and ":" not in first:
        found.append("no purpose in its first line")
    if not rest.strip():
        found.append("nothing about what must stay true")
    return found


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(ROOT)))
def test_a_room_has_few_files_in_a_folder_and_says_what_they_are(room: Path) -> None:
    found = {str(folder.relative_to(ROOT)): wrong for folder in folders(room) if (wrong := faults(folder))}
    assert found == {}


def test_a_heap_and_a_folder_without_a_purpose_are_noticed(tmp_path: Path) -> None:
    for number in range(FILES_MAX + 1):
        (tmp_path / f"part_{number}.py").touch()
    assert faults(tmp_path) == ["16 files", "no purpose in its first line", "nothing about what must stay true"]
    (tmp_path / "part_0.py").rename(tmp_path / "__init__.py")
    (tmp_path / "part_1.py").unlink()
    (tmp_path / "__init__.py").write_text('"""Parts of a machine."""\n')
    assert faults(tmp_path) == ["nothing about what must stay true"]
    (tmp_path / "__init__.py").write_text('"""Parts of a machine.\n\nInvariant: they fit.\n"""\n')
    assert faults(tmp_path) == []


# --- where things live ------------------------------------------------------------------------------------------------


def places() -> dict[str, list[str]]:
    """The table in ARCHITECTURE.md: what, and the paths named for it. A bare file name is next to the path before."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.split("## Where things live")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", table, re.MULTILINE)
    found: dict[str, list[str]] = {}
    for what, where in rows:
        paths = found.setdefault(what, [])
        for path in re.findall(r"`([\w/]+\.py)`", where):
            paths.append(path if "/" in path else f"{Path(paths[-1]).parent}/{path}")
    return {what: paths for what, paths in found.items() if paths}


def test_what_is_named_is_there_and_few_folders_deep() -> None:
    for what, paths in places().items():
        for path in paths:
            assert (PACKAGE / path).is_file(), f"{what}: there is no {path}"
            assert len(Path(path).parts) - 1 <= STEPS_MAX, f"{what}: {path} is too deep"


@pytest.mark.parametrize("what", SOUGHT)
def test_what_is_sought_is_in_the_file_that_is_named(what: str) -> None:
    first = places()[what][0]
    assert SOUGHT[what] in description((PACKAGE / first).read_text())
