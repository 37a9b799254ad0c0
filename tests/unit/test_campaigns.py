"""The table of long runs names programs that exist, and the documents mention only existing recipes and kinds."""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import campaigns
from tests.campaigns import BENCH, CAMPAIGN, FAMILIES, MUTANTS, SIMULATE, Kind

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "changes", "deploy", "docs", "examples", "harness", "src", "tests")
TEXTS = (".md", ".py", ".sh", ".toml", ".yml")
KINDS = [(family, name) for family, kinds in FAMILIES.items() for name in kinds]
DEV = "./" + "dev"
"""In two parts, so that the planted text below is not itself a mention."""


def can_be_run(module: str) -> bool:
    """Returns whether `python -m` can run the module. A folder needs a `__main__.py`."""
    try:
        spec = find_spec(module)
        return spec is not None and (not spec.submodule_search_locations or bool(find_spec(f"{module}.__main__")))
    except ModuleNotFoundError:
        return False


def wrong_with(kind: Kind) -> list[str]:
    found = []
    if not can_be_run(kind.module):
        found.append(f"{kind.module} is not there")
    if not kind.does.endswith(".") or len(kind.does.split()) < 4:
        found.append("no sentence")
    if not kind.takes:
        found.append("says nothing about time")
    if kind.page and not re.fullmatch(r"(results/)?[a-z-]+\.md( with --record)?|pictures/[a-z-]+\.svg", kind.page):
        found.append(f"{kind.page} is no page")
    return found


def recipes(justfile: str) -> set[str]:
    return set(re.findall(r"^@?([a-z][a-z-]*)\b[^:\n]*:(?!=)", justfile, re.MULTILINE))


def wrong_mentions(text: str, known: set[str], families: Mapping[str, Mapping[str, Kind]] = FAMILIES) -> list[str]:
    """Returns recipes that do not exist, and kinds that their family does not have."""
    wrong = []
    for recipe, kind in re.findall(re.escape(DEV) + r" ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?", text):
        if recipe not in known or (kind and recipe in families and kind not in families[recipe]):
            wrong.append(f"{recipe} {kind}".strip())
    return wrong


def texts() -> Iterator[Path]:
    yield from (ROOT / name for name in ("justfile", "dev", "pyproject.toml", ".ci/run"))
    yield from ROOT.glob("*.md")
    for folder in FOLDERS:
        yield from (path for path in (ROOT / folder).rglob("*") if path.suffix in TEXTS)


# --- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "name"), KINDS)
def test_a_kind_can_be_started_and_says_what_it_does(family: str, name: str) -> None:
    assert wrong_with(FAMILIES[family][name]) == []


def test_a_kind_that_is_wrong_is_noticed() -> None:
    assert wrong_with(Kind("tests.system.nothing", "Nothing", "", "results/nothing.txt")) == [
        "tests.system.nothing is not there",
        "no sentence",
        "says nothing about time",
        "results/nothing.txt is no page",
    ]
    assert not can_be_run("nowhere.nothing")
    assert not can_be_run("tests.system"), "a folder without a program"


@pytest.mark.parametrize("name", [name for name, kind in SIMULATE.items() if kind.usage.startswith("[COUNT")])
def test_pages_of_worlds_name_the_kind_that_writes_them(name: str) -> None:
    module = SIMULATE[name].module
    is_folder = (ROOT / module.replace(".", "/")).is_dir()
    kind = import_module(f"{module}.__main__" if is_folder else module).KIND
    assert (kind.name, kind.program) == (name, module)
    assert SIMULATE[name].page == f"results/{name}-simulation.md"


@pytest.mark.parametrize("name", [name for name in MUTANTS if name != "planted"])  # which runs no worlds
def test_pages_of_mutants_name_the_kind_that_writes_them(name: str) -> None:
    assert import_module(MUTANTS[name].module).MUTANTS.kind == name
    assert MUTANTS[name].page == f"results/{name}-mutants.md"


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (SIMULATE["raft"], "", "next 10000 --record"),
        (SIMULATE["raft"], "500 --minutes 20", "next 500 --record --minutes 20"),
        (SIMULATE["raft"], "--minutes 20", "next 10000 --record --minutes 20"),
        (SIMULATE["raft"], "0 5 --workers 1", "0 5 --workers 1"),
        (SIMULATE["servers"], "", "next 200 --record"),
        (SIMULATE["node"], "", "0 10000 --record"),
        (SIMULATE["node"], "9000", "9000 10000 --record"),
        (SIMULATE["node"], "10000 20000", "10000 20000 --record"),
        (SIMULATE["toy"], "0 5", "0 5 --twice"),
        (SIMULATE["compiled"], "elsewhere", "elsewhere"),
        (MUTANTS["raft"], "--workers 1", "--record --workers 1"),
        (CAMPAIGN["crashes"], "--count 200", "--record --count 200"),
        (CAMPAIGN["fuzz"], "produce", "produce --runs 1000000 --record"),
        (CAMPAIGN["fuzz"], "produce 1000 --short", "produce --runs 1000 --record --short"),
        (CAMPAIGN["fuzz"], "--help", "--help"),
        (CAMPAIGN["shop"], "", "--picture docs/pictures/shop.svg"),
        (BENCH["against"], "ab9dc8b --rows small", "ab9dc8b --rows small"),
        (BENCH["controller-scale"], "", "--record"),
    ],
)
def test_arguments_reach_the_program(kind: Kind, given: str, expected: str) -> None:
    assert kind.shape(given.split()) == expected.split()


def test_an_argument_with_a_space_stays_one() -> None:
    assert SIMULATE["power-cuts"].shape(["--kind", "bit flips"]) == ["--record", "--kind", "bit flips"]


def test_pages_are_made_after_a_run_that_changes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = [command[2] for command in campaigns.commands(CAMPAIGN["density"], [])]
    assert modules == ["tests.system.density", "docs.pages"]
    assert len(campaigns.commands(CAMPAIGN["crashes"], [])) == 1
    monkeypatch.setattr(campaigns, "find_spec", lambda name: None)
    modules = [command[2] for command in campaigns.commands(BENCH["growth"], [])]
    assert modules == ["pip", "benchmarks.side_by_side.growth", "docs.pages"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rest", [[], [""], ["nothing"], ["--help"]])
def test_without_a_kind_the_kinds_are_listed(
    family: str, rest: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert campaigns.main([family, *rest]) == 2
    lines = capsys.readouterr().err.splitlines()
    for name, kind in FAMILIES[family].items():
        (line,) = [line for line in lines if line.split()[0] == name]
        assert kind.does in line
        assert kind.takes in line
        assert kind.page in line


def test_a_program_that_fails_is_not_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first program fails before it starts anything: its arguments are wrong."""
    monkeypatch.setattr("os.execv", lambda *command: pytest.fail("pages were made"))
    assert campaigns.main(["simulate", "big-cluster", "--nothing"]) == 2


# --- mentions ---------------------------------------------------------------------------------------------------------


def test_every_family_is_a_recipe() -> None:
    assert FAMILIES.keys() <= recipes((ROOT / "justfile").read_text())


def test_documents_mention_what_exists() -> None:
    known = recipes((ROOT / "justfile").read_text())
    found = {str(path.relative_to(ROOT)): wrong_mentions(path.read_text(), known) for path in texts()}
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


def test_a_wrong_mention_is_noticed() -> None:
    known = recipes(
        'set shell := ["bash"]\n@default:\n    just\ntest *arguments:\nbench kind="":\nci: lint (test "-q")\n'
    )
    assert known == {"default", "test", "bench", "ci"}
    text = "`{0} test -k x`, `{0} crashes`, `{0} bench`, `{0} bench micro`, `{0} bench nothing --record`, `{0} ci`"
    assert wrong_mentions(text.format(DEV), known) == ["crashes", "bench nothing"]
