"""Runs what the pages in docs/ show, page by page and block by block in order, each page in a folder of its own.

Beside README (test_readme.py) and the pages about operating (test_operating_pages.py); `<!-- run by: … -->` in front of
a block names another test.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.bootstrap import write_endpoint
from tests.fenced import blocks, blocks_of, pages_run_alone
from tests.system.commands import a_broker
from tests.system.page_reader import PageReader

pytestmark = pytest.mark.xdist_group("pages")

HERE, ELSEWHERE = "localhost:9092", "broker-1:9093,broker-2:9093"
"""Addresses on the pages that stand for the broker's."""
NO_FOLDER = {"docs/commands.md"}
"""Pages about a folder in which nothing runs, where nobody answers at localhost:9092."""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A broker of `penstock dev`, in another folder than the page."""
    (tmp_path / "broker").mkdir()
    with a_broker(tmp_path / "broker", "dev", "--ephemeral", "--port", "0") as running:
        yield running.address


def reader_in(folder: Path, address: str, *, is_known: bool = True) -> PageReader:
    """A reader in an empty folder, in which commands find the broker if it `is_known`."""
    folder.mkdir()
    reader = PageReader(folder)
    reader.replaced[ELSEWHERE] = address
    if is_known:
        write_endpoint(folder, address)
        reader.replaced[HERE] = address
    return reader


@pytest.mark.parametrize("page", pages_run_alone())
def test_what_the_page_shows_can_be_done(page: str, address: str, tmp_path: Path) -> None:
    reader = reader_in(tmp_path / "page", address, is_known=page not in NO_FOLDER)
    for block in blocks_of(page):
        if block.is_run:
            reader.run(block)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("```sh\ntrue\nfalse\ntrue\n```\n", "ended with 1"),
        ("```sh\ntrue  # exit code 1\n```\n", "ended with 0"),
        ("```console\n$ echo one\ntwo\n```\n", "is not"),
        ("```console\n$ false\n```\n", "ended with 1"),
        ("```python\nraise ValueError('no')\n```\n", "no"),
        ("```python\nif False:\n    print(1)\n```\n", "prints nothing"),
    ],
)
def test_a_block_that_does_otherwise_than_told_is_noticed(text: str, told: str, tmp_path: Path) -> None:
    reader = reader_in(tmp_path / "page", "127.0.0.1:1")
    (block,) = blocks("page.md", text)
    with pytest.raises(AssertionError, match=told):
        reader.run(block)
