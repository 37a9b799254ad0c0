"""Machine code stays inside its arrays, which lie between inaccessible pages; a planted overrun crashes."""

import signal
import subprocess
import sys


def run_fence(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.unit.spark.columns.fence", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_mutated_batches_never_lead_outside() -> None:
    done = run_fence("--seed", "7", "--runs", "2000")
    assert done.returncode == 0, done.stderr
    assert "by both decoders alike" in done.stdout
    accepted = int(done.stdout.split(" accepted")[0].split()[-1])
    assert 200 < accepted < 1_800, "mutations that are all refused, or none, would prove nothing"


def test_one_byte_outside_is_seen() -> None:
    done = run_fence("--plant")
    assert done.returncode == -signal.SIGSEGV, done.stdout + done.stderr
