"""Code snippets of the client pages, and of the README, can be imported and run."""

import ast
import asyncio
import builtins
import contextlib
import re
import subprocess
import sys
from typing import Any

import pytest

import penstock.client
from docs.pages.__main__ import DOCS
from penstock.testing.plugin import Kafka

CLIENT = (DOCS / "client.md").read_text()
GROUPS = (DOCS / "groups.md").read_text().partition("## Being in a group")[2].partition("\n## ")[0]
PAGES = {"client": CLIENT, "groups": GROUPS}
YOURS = {"bill", "bill_all"}
"""Functions that the reader of a page defines."""
LOOP = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


class Enough(Exception):
    """Ends a snippet that reads for ever."""


def snippets(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


README = "".join(
    f"```python\n{each}```" for each in snippets((DOCS.parent / "README.md").read_text()) if "Client" in each
)
SNIPPETS = {
    f"{name} {number}": each
    for name, text in {**PAGES, "readme": README}.items()
    for number, each in enumerate(snippets(text))
}


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_snippet_says_where_its_names_come_from(name: str) -> None:
    nodes = list(ast.walk(compile(SNIPPETS[name], name, "exec", LOOP | ast.PyCF_ONLY_AST)))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound = {each.name for node in imports for each in node.names}
    bound |= {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}
    bound |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    assert {node.id for node in names} <= bound | YOURS | set(dir(builtins))
    assert {node.module for node in imports} <= {"penstock", "penstock.client"}


@pytest.mark.parametrize("name", PAGES)
def test_names_in_the_text_are_in_the_public_place(name: str) -> None:
    text = re.sub(r"```.*?```", "", PAGES[name], flags=re.DOTALL)
    code = " ".join(re.findall(r"`([^`]+)`", text))
    found = set(re.findall(r"(?<![\w.\"-])[A-Z][a-z]+[A-Za-z]*", code))
    assert found
    assert found <= set(penstock.client.__all__) | set(dir(builtins))


@pytest.mark.parametrize("name", penstock.client.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(penstock.client, name).__name__ == name


def test_every_error_of_the_client_is_public() -> None:
    from penstock.client import errors

    own = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)}
    assert own <= set(penstock.client.__all__)


def test_a_name_costs_no_more_than_where_it_lives() -> None:
    program = (
        "import sys\n"
        "from penstock.client import GroupSettings, Refused\n"
        "assert 'penstock.client.client' not in sys.modules\n"
        "try:\n    from penstock.client import Nothing\nexcept ImportError: pass\nelse: raise AssertionError\n"
        "from penstock.client import *\n"
        "assert Client.__name__ == 'Client'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_snippet_runs(name: str, kafka: Kafka) -> None:
    orders, refunds, group = (kafka.topic(each) for each in ("orders", "refunds", "billing"))
    text = SNIPPETS[name].replace("localhost:9092", kafka.bootstrap)
    for word, real in (("orders", orders), ("refunds", refunds), ("billing", group)):
        text = text.replace(f'"{word}"', f'"{real}"')
    if "create_topic" not in text:
        kafka.create("orders", 3)
        kafka.create("refunds")
        kafka.produce("orders", "paid")
    seen: list[Any] = []

    async def take(what: Any) -> None:
        seen.append(what)
        raise Enough

    names = {"bill": take, "bill_all": take, "print": lambda *what: seen.append(what)}

    async def run() -> None:
        if (rest := eval(compile(text, name, "exec", LOOP), names)) is not None:  # a snippet without a loop is done
            await rest

    with contextlib.suppress(Enough):
        asyncio.run(run())
    assert seen
