"""Every target for 8 seconds, from fresh seeds: two minutes in all."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.fuzz.run import ROOT
from tests.fuzz.targets import TARGETS

SECONDS = float(os.environ.get("PENSTOCK_FUZZ_SECONDS", "8"))


@pytest.mark.fuzz
@pytest.mark.parametrize("name", TARGETS)
def test_a_short_run_finds_nothing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if find_spec("atheris") is None:
        assert "CI" not in os.environ, "CI must fuzz: install the dependency group fuzz"
        pytest.skip("atheris is not installed (dependency group fuzz)")
    command = [sys.executable, "tests/fuzz/run.py", name, "--short", "--seconds", str(SECONDS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS + 120, check=False)
    with capsys.disabled():
        print(f"\n{done.stdout.strip()}", file=sys.stderr)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
