"""The documented commands of the shop's generator run as they are written, with fewer events."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.shop.generate import TOPICS
from penstock.client.blocking import SyncClient
from penstock.testing.node import NodeThread

SHOP = Path(__file__).parents[3] / "examples" / "shop"
EVENTS = 1500
TIMEOUT_S = 300
COMMAND = "python generate.py"
COMMANDS = sorted(
    {
        line.strip().rstrip("& ")
        for page in ("README.md", "generate.py")
        for line in (SHOP / page).read_text().splitlines()
        if line.strip().startswith(COMMAND)
    }
)


@pytest.fixture
def bootstrap() -> Iterator[str]:
    """A node of its own: the names of the shop's topics are fixed."""
    node = NodeThread()
    node.start()
    yield node.bootstrap
    node.stop()


def test_commands_are_documented() -> None:
    assert len(COMMANDS) == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_a_documented_command_writes_its_events_and_prints_its_ledger(command: str, bootstrap: str) -> None:
    fewer = re.sub(r"--events \d+", f"--events {EVENTS}", command).removeprefix("python")
    done = subprocess.run(
        [sys.executable, *shlex.split(fewer)],
        cwd=SHOP,
        env={**os.environ, "PENSTOCK_BOOTSTRAP": bootstrap},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    ledger = json.loads(done.stdout)
    with SyncClient(bootstrap) as client:
        written = Counter(each.topic for each in client.consume(list(TOPICS), until_end=True))
    assert written == ledger["records"]
    assert written.total() == EVENTS
    assert sum(ledger["poison"].values()) == len([each for each in range(EVENTS) if each % 401 == 200])
    assert all(cents > 0 for cents in ledger["revenue_cents"].values())
