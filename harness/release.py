"""`./dev release`: builds the wheel, the sdist and the changelog of this checkout into dist/, and writes nothing else.

The version is that of src/penstock/version.py. The wheel is the one that `pip install .` builds, and that the sdist
builds, to the byte. The changelog is CHANGELOG.md, with the notes of changes/ in front if there are any.
"""

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from penstock.version import __version__

ROOT = Path(__file__).resolve().parents[1]
CHANGELOG = "CHANGELOG.md"
OURS = ("penstock-*.whl", "penstock-*.tar.gz", CHANGELOG)
"""What an earlier release left in the folder."""


@dataclass(frozen=True, slots=True)
class Release:
    """What was built."""

    wheel: Path
    sdist: Path
    changelog: Path


def build(folder: Path, root: Path = ROOT) -> Release:
    """Builds a release of the tree at `root` into the folder, in the place of an earlier one."""
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in OURS:
        for left in folder.glob(pattern):
            left.unlink()
    _run(root, "hatchling", "build", "--target", "sdist", "--target", "wheel", "--directory", str(folder))
    (wheel,), (sdist,) = folder.glob(OURS[0]), folder.glob(OURS[1])
    changelog = folder / CHANGELOG
    changelog.write_text(_changelog(root), encoding="utf-8")
    return Release(wheel, sdist, changelog)


def _changelog(root: Path) -> str:
    former = root / CHANGELOG
    parts = [former.read_text(encoding="utf-8")] if former.exists() else []
    if any(note.name != "README.md" for note in (root / "changes").glob("*.md")):
        parts.insert(0, _run(root, "towncrier", "build", "--draft", "--version", __version__))
    return "\n".join(part.strip() + "\n" for part in parts)


def _run(root: Path, module: str, *arguments: str) -> str:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout


def _uncommitted() -> str:
    command = ["git", "status", "--porcelain"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """See the module. Refuses a tree with changes that are not committed, unless it is told otherwise."""
    parser = argparse.ArgumentParser(prog="./dev release", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--uncommitted", action="store_true", help="also with changes that are not committed")
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="the folder (dist/)")
    options = parser.parse_args()
    if not options.uncommitted and (changed := _uncommitted()):
        sys.exit(f"not committed, so nothing was built (--uncommitted builds it all the same):\n{changed}")
    built = build(options.into.resolve())
    for each in (built.wheel, built.sdist, built.changelog):
        print(f"{each}  {each.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
