"""`./dev release`: what is in the wheel and in the sdist, that one builds the other, and what the changelog holds.

tests/system/test_readme.py runs README.md from that wheel in an empty environment.
"""

import subprocess
import sys
import tarfile
from pathlib import Path
from zipfile import ZipFile

import pytest

from harness import release as program
from harness.release import ROOT, Release, build
from penstock.version import __version__

pytestmark = pytest.mark.xdist_group("first-minute")

PACKAGES = ("penstock", "pyspark_penstock")
DESCRIPTION = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "licenses/NOTICE")
BESIDE_THE_SOURCES = {
    ".gitignore",
    "ARCHITECTURE.md",
    "LICENSE",
    "NOTICE",
    "PKG-INFO",
    "README.md",
    "pyproject.toml",
}


def files_in(root: Path) -> set[str]:
    """Files of the packages in src."""
    found = (path for package in PACKAGES for path in (root / "src" / package).rglob("*") if path.is_file())
    return {str(path.relative_to(root / "src")) for path in found if "__pycache__" not in path.parts}


def git_status() -> str:
    command = ["git", "status", "--porcelain", "--untracked-files=all"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Release:
    before = git_status()
    built = build(tmp_path_factory.mktemp("release"))
    assert git_status() == before, "it writes nothing but the folder"
    return built


def test_the_wheel_has_the_packages_and_nothing_else(built: Release) -> None:
    assert built.wheel.name == f"penstock-{__version__}-py3-none-any.whl"
    with ZipFile(built.wheel) as wheel:
        names = set(wheel.namelist())
    description = {f"penstock-{__version__}.dist-info/{name}" for name in DESCRIPTION}
    assert names == files_in(ROOT) | description
    assert "penstock/py.typed" in names
    assert {name.partition("/")[0] for name in names - description} == set(PACKAGES), "no tests, no benchmarks"


def test_the_sdist_has_the_sources_and_builds_the_same_wheel(built: Release, tmp_path: Path) -> None:
    assert built.sdist.name == f"penstock-{__version__}.tar.gz"
    with tarfile.open(built.sdist) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    files = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert files == {f"src/{name}" for name in files_in(ROOT)} | BESIDE_THE_SOURCES
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=unpacked, check=True, capture_output=True)
    assert (tmp_path / built.wheel.name).read_bytes() == built.wheel.read_bytes()


def test_the_changelog_has_the_notes_of_this_version(built: Release) -> None:
    text = built.changelog.read_text()
    assert text.startswith(f"## {__version__} (")
    assert "\n### New\n" in text
    assert "\n- `penstock.Client`: create topics" in text
    assert "(#" not in text, "notes are named by words, not by numbers of issues"


def test_earlier_notes_follow_and_an_earlier_release_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, folder = tmp_path / "tree", tmp_path / "dist"
    (tree / "changes").mkdir(parents=True)
    (tree / "changes" / "README.md").write_text("not a note")
    (tree / "CHANGELOG.md").write_text("## 0.1.0 (2026-01-01)\n\n- All of it.\n")
    folder.mkdir()
    for name in ("penstock-0.0.9-py3-none-any.whl", "penstock-0.0.9.tar.gz", "of-somebody-else"):
        (folder / name).touch()

    def run(root: Path, module: str, *arguments: str) -> str:
        if module == "hatchling":
            (folder / "penstock-0.1.0-py3-none-any.whl").touch()
            (folder / "penstock-0.1.0.tar.gz").touch()
        return "## 0.2.0 (2026-02-01)\n\n- More.\n\n"

    monkeypatch.setattr(program, "_run", run)
    assert build(folder, tree).changelog.read_text() == "## 0.1.0 (2026-01-01)\n\n- All of it.\n", "no notes are left"
    (tree / "changes" / "more.feature.md").write_text("More.")
    assert build(folder, tree).changelog.read_text() == (
        "## 0.2.0 (2026-02-01)\n\n- More.\n\n## 0.1.0 (2026-01-01)\n\n- All of it.\n"
    )
    assert {path.name for path in folder.iterdir()} == {
        "CHANGELOG.md",
        "of-somebody-else",
        "penstock-0.1.0-py3-none-any.whl",
        "penstock-0.1.0.tar.gz",
    }


def test_what_is_not_committed_is_not_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_uncommitted", lambda: " M src/penstock/version.py\n")
    monkeypatch.setattr(sys, "argv", ["release"])
    with pytest.raises(SystemExit, match=r"(?s)not committed.*src/penstock/version\.py"):
        program.main()
