"""Runs the commands and snippets of README.md as they stand there, in order, in an empty environment and folder.

The environment has nothing but the wheel of `./dev release`, and pytest for the snippet that is a test.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fenced import README, blocks, blocks_of
from tests.system.empty_environment import CLEAN, ROOT, Bench, start, stop
from tests.system.page_reader import PageReader

pytestmark = pytest.mark.xdist_group("first-minute")

TEXT = (ROOT / README).read_text()
ADDRESS = "localhost:9092"
LINES_MAX, COLUMNS_MAX, WORDS_MAX = 150, 120, 1_200


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    bench = Bench(tmp_path_factory.mktemp("readme"))
    bench.begin("pytest")
    return bench


@pytest.fixture
def reader(bench: Bench) -> Iterator[PageReader]:
    """A reader in the folder in which `penstock dev` runs. Another program may have the port of the page."""
    process, _ = start(bench)
    try:
        reader = PageReader(bench.directory, bench.bin, CLEAN)
        address = (bench.directory / ".penstock" / "endpoint").read_text().strip()
        reader.replaced[ADDRESS] = address.split(",", maxsplit=1)[0]
        yield reader
    finally:
        stop(process)


def test_all_of_it_runs_in_order(reader: PageReader) -> None:
    (install, *rest) = [block for block in blocks_of(README) if block.is_run]
    assert install.text == "pip install .\npenstock dev\n", "the fixtures do this"
    for block in rest:
        reader.run(block)


def test_its_tests_would_notice_a_wrong_command(reader: PageReader) -> None:
    (wrong,) = blocks(README, "```sh\npenstock topic describe no-such-topic\n```\n")
    with pytest.raises(AssertionError, match="no-such-topic"):
        reader.run(wrong)


def test_it_is_short() -> None:
    lines = TEXT.splitlines()
    assert len(lines) <= LINES_MAX
    assert len(TEXT.split()) <= WORDS_MAX
    assert [line for line in lines if len(line) > COLUMNS_MAX] == []


def test_its_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", TEXT) if "://" not in link]
    assert links
    assert [link for link in links if not (Path(ROOT) / link).exists()] == []
