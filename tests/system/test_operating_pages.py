"""Runs what the pages about operating a cluster show, page by page, on the cluster that the first one creates.

Each page begins with a healthy cluster, and leaves one.
"""

from collections.abc import Iterator

import pytest

from harness.ports import free_port
from tests.fenced import OPERATING, blocks_of
from tests.system.page_reader import PageReader

pytestmark = pytest.mark.xdist_group("cluster")

PORT = "19092"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageReader]:
    reader = PageReader(tmp_path_factory.mktemp("operating"))
    reader.replaced[PORT] = str(free_port(is_kept=False))
    try:
        yield reader
    finally:
        reader.types(["penstock sandbox down"])


@pytest.mark.parametrize("page", OPERATING)
def test_what_the_page_says_is_so(reader: PageReader, page: str) -> None:
    run = [block for block in blocks_of(page) if block.is_run]
    last = run[-1].text.splitlines()[-1]
    assert last == "penstock cluster health --wait 60", "what one page has harmed, the next does not begin with"
    for block in run:
        reader.run(block)
