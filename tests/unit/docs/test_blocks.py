"""Every fenced block of README.md, docs/ and examples/ is run by a test, or says why not; every command exists."""

import importlib.util
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from penstock.cli.main import app
from tests.campaigns import FAMILIES
from tests.fenced import COMMANDS, FILES, OUTPUT, PAGES, README, ROOT, Block, blocks, blocks_of

TEXTS = (*PAGES, "ARCHITECTURE.md", "CONTRIBUTING.md")
A_COMMAND = re.compile(r"\s*(\$ |\./dev |(penstock|python|pip) [a-z-])")
PROGRAM = get_command(app)
INLINE = re.compile(r"`(penstock\s[^`]*)`")
STATED = re.compile(
    r"(\d+) blocks of commands, code and files: (\d+) run in order, (\d+) run by another test, (\d+) not run"
)


def all_blocks() -> list[Block]:
    return [block for page in PAGES for block in blocks_of(page)]


def faults(block: Block) -> list[str]:
    """What is wrong with a block."""
    place, found = f"{block.page}:{block.line}", []
    if block.language not in COMMANDS | FILES | {OUTPUT}:
        found.append(f"{place}: {block.language or 'no language'}: it is one of sh, console, python, text, or a file")
    if block.language == OUTPUT and any(A_COMMAND.match(line) for line in block.text.splitlines()):
        found.append(f"{place}: a text has commands: let them be run")
    if block.language in FILES and block.is_run and not block.file:
        found.append(f"{place}: a file without a name")
    if block.run_by and not (ROOT / block.run_by).is_file():
        found.append(f"{place}: there is no {block.run_by}")
    return found


def test_each_block_is_run_or_says_why_not() -> None:
    assert [fault for block in all_blocks() for fault in faults(block)] == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("```\nls\n```\n", "no language"),
        ("```bash\nls\n```\n", "bash"),
        ("```text\npenstock topic list\n```\n", "a text has commands"),
        ("```text\n$ ls\n```\n", "a text has commands"),
        ("```toml\na = 1\n```\n", "a file without a name"),
        ("<!-- run by: tests/test_nothing.py -->\n\n```sh\nls\n```\n", "there is no tests/test_nothing.py"),
    ],
)
def test_a_fault_would_be_found(text: str, fault: str) -> None:
    (block,) = blocks("page.md", text)
    assert [fault in each for each in faults(block)] == [True]


def test_commands_stand_in_fences() -> None:
    """An indented command would be run by nobody."""
    for page in PAGES:
        text = re.sub(r"(?ms)^ *```.*?^ *```$|<!--.*?-->", "", (ROOT / page).read_text(encoding="utf-8"))
        assert not re.findall(r"(?m)^ {4,}(?:\./dev|penstock|python -m|pip|kafka-\w+) .*", text), page


def test_the_number_of_blocks_is_stated() -> None:
    counts = Counter(
        "output"
        if block.language == OUTPUT
        else "by another"
        if block.run_by
        else "not run"
        if block.reason
        else "in order"
        for block in all_blocks()
    )
    done = (counts["in order"], counts["by another"], counts["not run"])
    (stated,) = STATED.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert tuple(map(int, stated)) == (sum(done), *done)


def test_a_name_of_a_file_is_used_by_a_later_command() -> None:
    for page in PAGES:
        found = blocks_of(page)
        for index, block in enumerate(found):
            if block.file:
                rest = [each for each in found[index + 1 :] if each.language in COMMANDS]
                assert any(block.file in each.first + each.text for each in rest), f"{page}:{block.line}"


# --- commands in the text ---------------------------------------------------------------------------------------------


TEMPLATES = {"penstock {old}", "penstock {new}"}
"""Of `old_names`."""


def mentioned(page: str) -> set[str]:
    """Command lines of `penstock` in the text and the blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = {re.sub(r"\s+", " ", each) for each in INLINE.findall(re.sub(r"(?ms)^ *```.*?^ *```$", "", text))}
    for block in blocks(page, text):
        if block.language in {"sh", "console"}:
            for line in block.text.splitlines():
                lines.update(each.strip() for each in re.findall(r"(?:^|[|$] ?)(penstock [^|#&]*)", line))
    return lines


def wrong_with(line: str) -> str:
    """What a command line names that does not exist; empty if all of it does. A word in capitals or `…` is anything."""
    words = shlex.split(line.replace("…", " "))[1:]
    command: Any = PROGRAM
    while words and (below := _commands(command)) and not words[0].startswith("-"):
        names = words.pop(0).split("|")
        if names == ["COMMAND"]:
            return ""
        if missing := [each for each in names if each not in below]:
            return f"no command {missing[0]}"
        if len(names) > 1:
            return ""
        command = below[names[0]]
    options = {name for each in command.params for name in each.opts + each.secondary_opts} | {"-h", "--help"}
    for word in words:
        name = word.partition("=")[0]
        is_option = re.fullmatch(r"--?[a-zA-Z][\w-]*", name) is not None
        if is_option and name not in options and not any(name.startswith(each) for each in options if len(each) == 2):
            return f"no option {name}"
    return ""


def _commands(command: Any) -> dict[str, Any]:
    """The commands of a group, without old names."""
    return {name: each for name, each in getattr(command, "commands", {}).items() if not each.hidden}


@pytest.mark.parametrize("page", TEXTS)
def test_every_command_that_is_mentioned_exists(page: str) -> None:
    wrong = {line: wrong_with(line) for line in mentioned(page) - TEMPLATES}
    assert {line: each for line, each in wrong.items() if each} == {}


def test_a_command_that_does_not_exist_would_be_found() -> None:
    assert wrong_with("penstock topic show orders") == "no command show"
    assert wrong_with("penstock topic delete orders --force") == "no option --force"
    assert not wrong_with("penstock consume -K: orders --exit -o -10")
    assert mentioned(README) >= {"penstock produce orders", "penstock size", "penstock verify"}


def test_paths_of_tests_in_reasons_exist() -> None:
    for block in all_blocks():
        for path in re.findall(r"tests/[\w/.]+\.py", block.reason):
            assert Path(ROOT / path).is_file(), f"{block.page}:{block.line}: {path}"


def test_every_command_that_a_message_advises_exists() -> None:
    """In messages, help and comments: an adjacent literal may continue the command, so only its words are compared."""
    wrong = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for line in INLINE.findall(re.sub(r'"\n\s*f?"', "", path.read_text(encoding="utf-8"))):
            plain = re.sub(r"\{[^}]*\}", "X", re.sub(r"\s+", " ", line)).replace("'", "").replace('"', "")
            if (each := wrong_with(plain)) and line not in TEMPLATES:
                wrong[f"{path.relative_to(ROOT)}: {line}"] = each
    assert wrong == {}


def test_what_is_not_run_exists() -> None:
    """Modules and long runs of a checkout."""
    text = "".join(block.text for block in all_blocks() if block.reason)
    modules, kinds = re.findall(r"python -m (tests\.[\w.]+)", text), re.findall(r"\./dev (\w+) +(\w+)", text)
    assert modules
    assert [name for name in modules if importlib.util.find_spec(name) is None] == []
    assert kinds
    assert [(name, kind) for name, kind in kinds if kind not in FAMILIES.get(name, {})] == []
