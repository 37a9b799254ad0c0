"""Runs command lines in this process."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.cli.main import run


@dataclass
class Outcome:
    code: int
    out: str
    err: str


Penstock = Callable[..., Outcome]


@pytest.fixture
def penstock(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Penstock:
    """Runs `penstock` command lines in a temporary working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for variable in ("PENSTOCK_BOOTSTRAP", "PENSTOCK_CONTEXT", "PENSTOCK_DEBUG"):
        monkeypatch.delenv(variable, raising=False)

    def call(*arguments: str) -> Outcome:
        code = run(arguments)
        out, err = capfd.readouterr()
        return Outcome(code, out, err)

    return call
