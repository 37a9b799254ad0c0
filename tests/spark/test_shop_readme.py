"""The commands of examples/shop/README.md, as they stand there and in their order, with fewer events."""

import json
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tests.fenced import ROOT, blocks_of
from tests.spark.lake.pipelines import environment
from tests.system.commands import a_broker
from tests.system.page_reader import PageReader

pytestmark = [pytest.mark.peers, pytest.mark.xdist_group("spark")]

PAGE = "examples/shop/README.md"
DONE_ALREADY = ['pip install ".[spark]"', "cd examples/shop", "penstock dev"]
GENERATE, RUN, REVENUE, ONCE, CONSUME = (
    "python generate.py --events 200000 --rate 2000",
    "penstock spark run",
    "python revenue.py lake",
    "penstock spark run --once",
    "penstock consume shop.dlq --from start",
)
EVENTS, TABLES = 2_000, ("clicks", "orders", "payments")
LIMIT_S = 300


def commands() -> list[str]:
    (block,) = blocks_of(PAGE)
    return [line.partition("  #")[0].rstrip("& ") for line in block.text.splitlines()]


class Shop:
    """A copy of the example, with a broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reader = PageReader(folder, clean=environment())

    def start(self, command: str) -> "subprocess.Popen[str]":
        text = command.replace("200000", str(EVENTS))
        return subprocess.Popen(
            shlex.split(text), cwd=self.folder, env=self._reader.environment, stdout=subprocess.PIPE, text=True
        )

    def run(self, command: str) -> str:
        return self._reader.types([command])

    def rows(self, table: str) -> int:
        try:
            return DeltaTable(self.folder / "lake" / table).count()
        except TableNotFoundError:
            return 0


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    folder = tmp_path / "shop"
    shutil.copytree(ROOT / "examples" / "shop", folder)
    with a_broker(folder, "dev", "--port", "0"):
        yield Shop(folder)


def test_the_example_can_be_followed(shop: Shop) -> None:
    assert commands() == [*DONE_ALREADY, GENERATE, RUN, REVENUE, ONCE, CONSUME]
    generator, driver = shop.start(GENERATE), shop.start(RUN)
    with generator, driver:
        printed, _ = generator.communicate(timeout=LIMIT_S)
        assert generator.returncode == 0
        ledger = json.loads(printed)
        end_s = time.monotonic() + LIMIT_S
        while not all(map(shop.rows, TABLES)):
            assert time.monotonic() < end_s, "the lakes stay empty"
            assert driver.poll() is None
            time.sleep(0.5)
        driver.send_signal(signal.SIGINT)
        driver.communicate(timeout=LIMIT_S)
        assert driver.returncode == 0, "Ctrl-C ends it"
    assert "payments" in shop.run(REVENUE)
    shop.run(ONCE)
    written = {name: ledger["records"][name] - ledger["poison"].get(name, 0) for name in TABLES}
    assert {name: shop.rows(name) for name in TABLES} == written
    letters = shop.run(f"{CONSUME}  # until Ctrl-C").splitlines()[1:]
    assert len(letters) == sum(ledger["poison"].values()) > 0
