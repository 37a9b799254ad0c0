"""Runs the commands and snippets of README.md as they stand there, in order, in an empty environment and folder."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.system.empty_environment import CLEAN, ROOT, Bench, start, stop

pytestmark = pytest.mark.xdist_group("first-minute")

README = (ROOT / "README.md").read_text()
ADDRESS = "localhost:9092"
LINES_MAX, COLUMNS_MAX, WORDS_MAX = 150, 120, 1_200


class Block(NamedTuple):
    language: str
    text: str
    reason: str
    """Why it is not run; empty if it is."""


def blocks(text: str) -> list[Block]:
    found = re.findall(r"(?:^<!-- not run: ([^\n]+) -->\n+)?^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [Block(language, code, reason) for reason, language, code in found]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    bench = Bench(tmp_path_factory.mktemp("readme"))
    bench.run(sys.executable, "-m", "venv", bench.directory / "environment")
    bench.install("pytest", str(ROOT))
    return bench


@pytest.fixture
def broker(bench: Bench) -> Iterator[str]:
    """`penstock dev` in the folder; its address, because another program may have the port."""
    process, _ = start(bench)
    try:
        yield (bench.directory / ".penstock" / "endpoint").read_text().strip()
    finally:
        stop(process)


def shell(bench: Bench, script: str) -> str:
    environment = CLEAN | {"PATH": f"{bench.bin}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=bench.directory,
        env=environment,
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return done.stdout.decode()


def test_all_of_it_runs_in_order(bench: Bench, broker: str) -> None:
    (install, *rest) = [block for block in blocks(README) if not block.reason]
    assert install == Block("sh", "pip install .\npenstock dev\n", ""), "the fixtures do this"
    for number, block in enumerate(rest):
        text = block.text.replace(ADDRESS, broker.split(",", maxsplit=1)[0])
        if block.language == "sh":
            shell(bench, text)
            continue
        assert block.language == "python"
        is_test = "\ndef test_" in f"\n{text}"
        path = bench.directory / f"{'test_' if is_test else ''}block_{number}.py"
        path.write_text(text)
        bench.run(*((bench.bin / "pytest", "-q") if is_test else (bench.bin / "python",)), path)


def test_its_tests_would_notice_a_wrong_command(bench: Bench, broker: str) -> None:
    with pytest.raises(AssertionError):
        shell(bench, f"penstock topic describe no-such-topic -b {broker}\n")


def test_what_is_not_run_has_a_reason() -> None:
    text = "<!-- not run: it takes an hour -->\n\n```sh\nlong\n```\n\n```sh\nshort\n```\n"
    assert blocks(text) == [Block("sh", "long\n", "it takes an hour"), Block("sh", "short\n", "")]
    assert len(blocks(README)) == len(re.findall(r"^```", README, re.MULTILINE)) / 2


def test_it_is_short() -> None:
    lines = README.splitlines()
    assert len(lines) <= LINES_MAX
    assert len(README.split()) <= WORDS_MAX
    assert [line for line in lines if len(line) > COLUMNS_MAX] == []


def test_its_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (Path(ROOT) / link).exists()] == []
