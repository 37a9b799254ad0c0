"""Tests and benchmarks share code through `harness`; no module imports from a `test_*.py`."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "docs", "examples", "harness", "src", "tests")
BORROWERS = {"tests/system/verify_runs.py"}
"""Programs among the tests that still import benchmarks."""


def imported(source: str) -> Iterator[str]:
    """Yields the modules that a source imports, and the names imported from them, with dots."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{each.name}" for each in node.names)


def from_tests(source: str) -> list[str]:
    """Returns the imports of a test module, or from one."""
    return [name for name in imported(source) if any(part.startswith("test_") for part in name.split("."))]


def sources(*folders: str) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text()


def test_nobody_imports_from_a_test() -> None:
    found = {path: names for path, source in sources(*FOLDERS) if (names := from_tests(source))}
    assert found == {}


def test_an_import_from_a_test_is_noticed() -> None:
    assert from_tests("from tests.unit.log.test_log import a_log") == ["tests.unit.log.test_log.a_log"]
    assert from_tests("from tests.unit.log import test_log") == ["tests.unit.log.test_log"]
    assert from_tests("import tests.unit.log.test_log as log") == ["tests.unit.log.test_log"]
    assert from_tests("def late():\n    from tests.golden.test_golden import open_all") != []
    assert from_tests("from tests.unit.log.place import a_log\nimport testing.things") == []
    assert taken_from("benchmarks", "from benchmarks.side_by_side import rows") == ["benchmarks.side_by_side.rows"]


def test_benchmarks_take_nothing_from_tests() -> None:
    found = {path: names for path, source in sources("benchmarks") if (names := taken_from("tests", source))}
    assert found == {}


def test_programs_of_tests_do_not_lean_on_benchmarks() -> None:
    """Only tests of benchmarks do."""
    programs = ((path, source) for path, source in sources("tests") if not Path(path).name.startswith("test_"))
    assert {path for path, source in programs if taken_from("benchmarks", source)} == BORROWERS


def test_the_harness_needs_neither() -> None:
    for path, source in sources("harness"):
        assert [*taken_from("tests", source), *taken_from("benchmarks", source)] == [], path


def taken_from(folder: str, source: str) -> list[str]:
    return [name for name in imported(source) if name.startswith(f"{folder}.")]
