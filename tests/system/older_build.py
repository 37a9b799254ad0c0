"""Older builds of this package: copies of its sources with lower maximum feature levels.

A process runs such a build through its PYTHONPATH. To the nodes beside it, it behaves like an older version: it
reports, registers and records the lower levels, and does not support higher ones.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from penstock.server.settings import SUPPORTED_FEATURES
from tests.system.victim import ROOT

METADATA: Final = "metadata.version"
MOST: Final = next(each.max_version for each in SUPPORTED_FEATURES if each.name == METADATA)
LEAST: Final = next(each.min_version for each in SUPPORTED_FEATURES if each.name == METADATA)
_DECLARED: Final = re.compile(r"^SUPPORTED_FEATURES = \($.*?^\)$", re.MULTILINE | re.DOTALL)


class Build(NamedTuple):
    """A version of the package."""

    level: int
    """The highest metadata.version that it supports."""
    path: Path | None = None
    """Its directory; None means the present sources."""

    @property
    def levels(self) -> Mapping[str, int]:
        """The feature levels in force once all nodes run this build and their levels were raised."""
        if self.path is not None:
            return {METADATA: self.level}
        return {each.name: each.max_version for each in SUPPORTED_FEATURES}

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables of a process that runs it."""
        return {} if self.path is None else {"PYTHONPATH": os.pathsep.join([str(self.path), str(ROOT)])}


PRESENT: Final = Build(MOST)


def older_build(directory: Path, level: int) -> Build:
    """A build that supports metadata.version up to this level, and no other feature."""
    assert LEAST <= level < MOST, f"there are builds of levels {LEAST} to {MOST - 1}"
    path = directory / f"build-{level}"
    shutil.copytree(ROOT / "src" / "penstock", path / "penstock", ignore=shutil.ignore_patterns("*.pyc.*"))
    settings = path / "penstock" / "server" / "settings.py"
    declared = f'SUPPORTED_FEATURES = (Feature("{METADATA}", {LEAST}, {level}, {level}),)'
    text, count = _DECLARED.subn(declared, settings.read_text())
    assert count == 1, "the sources do not declare their features as they did"
    settings.write_text(text)
    return Build(level, path)
