"""Cores, server and simulator depend only on their inputs; and the lint detects violations."""

from pathlib import Path

import pytest

from tests.determinism_lint import BUILTINS, EMPTY_EXCUSE, METHODS, NAMES, SET_ORDER, VAIN_EXCUSE, lint

PENSTOCK = Path(__file__).parents[2] / "src" / "penstock"
ROOMS = [
    "model",
    "records",
    "wire",
    "log",
    "raft",
    "metadata",
    "replication",
    "coordinator",
    "security",
    "tier",
    "verify",
    "client",
    "server",
    "simulator",
]
DISK = ["faults", "lossy", "memory", "names", "paths", "pinned", "survivors", "tree", "unsynced"]
"""The modules of `host` that make up a simulated disk."""

FILES = [path for room in ROOMS for path in sorted((PENSTOCK / room).rglob("*.py"))]
FILES += [PENSTOCK / "host" / f"{name}.py" for name in DISK]


def test_the_house_is_deterministic() -> None:
    found = [
        f"{path.relative_to(PENSTOCK)}:{row.line} {row.what}: {row.why}"
        for path in FILES
        for row in lint(path.read_text())
    ]
    assert not found, "\n".join(found)
    assert len(FILES) > 100


PLANTED = [
    # a rule, and code that breaks it
    ("asyncio.wait", "import asyncio\nasync def f(t):\n    await asyncio.wait(t)"),
    ("asyncio.wait", "from asyncio import wait as w"),
    ("asyncio.wait", "import asyncio as aio\nasync def f(t):\n    done, _ = await aio.wait(t)"),
    ("asyncio.as_completed", "import asyncio\nfor x in asyncio.as_completed([]): ..."),
    ("asyncio.all_tasks", "import asyncio\nx = asyncio.all_tasks()"),
    ("asyncio.TaskGroup", "import asyncio\nasync def f():\n    async with asyncio.TaskGroup() as g: ..."),
    ("asyncio.to_thread", "import asyncio\nasync def f():\n    await asyncio.to_thread(print)"),
    ("asyncio.run_coroutine_threadsafe", "import asyncio\nasyncio.run_coroutine_threadsafe(None, None)"),
    ("threading", "import threading"),
    ("threading", "from threading import Lock"),
    ("_thread", "import _thread"),
    ("concurrent.futures", "from concurrent.futures import ThreadPoolExecutor"),
    ("concurrent.futures", "import concurrent.futures"),
    ("multiprocessing", "from multiprocessing import Pool"),
    ("time", "import time"),
    ("time", "from time import monotonic"),
    ("datetime.datetime.now", "from datetime import datetime\nx = datetime.now()"),
    ("datetime.datetime.now", "import datetime\nx = datetime.datetime.now()"),
    ("datetime.datetime.utcnow", "from datetime import datetime as d\nx = d.utcnow()"),
    ("datetime.datetime.today", "import datetime as dt\nx = dt.datetime.today()"),
    ("datetime.date.today", "from datetime import date\nx = date.today()"),
    ("random", "import random\nx = random.random()"),
    ("random", "import random\nx = random.Random()"),
    ("random", "from random import choice"),
    ("random", "from random import SystemRandom"),
    ("secrets", "import secrets"),
    ("os.urandom", "import os\nx = os.urandom(8)"),
    ("os.urandom", "from os import urandom"),
    ("os.getrandom", "import os\nx = os.getrandom(8)"),
    ("uuid.uuid1", "import uuid\nx = uuid.uuid1()"),
    ("uuid.uuid4", "from uuid import uuid4"),
    ("run_in_executor", "def f(loop):\n    loop.run_in_executor(None, print)"),
    ("call_soon_threadsafe", "def f(loop):\n    loop.call_soon_threadsafe(print)"),
    ("id", "x = sorted([], key=id)"),
    ("id", "def f(a, b):\n    return id(a) < id(b)"),
    ("hash", "x = hash('a') % 8"),
]

PLANTED_SETS = [
    "for x in {1, 2}: ...",
    "for x in set(y): ...",
    "for x in frozenset(y): ...",
    "for x in {y for y in z}: ...",
    "s = {1}\nfor x in s: ...",
    "def f(s: set[str]):\n    return [x for x in s]",
    "def f(s: frozenset[str] | None):\n    return list(s)",
    "def f(s: 'set[str]'):\n    yield from s",
    "def f():\n    s: set[int] = g()\n    return tuple(s)",
    "def f():\n    s = set()\n    return {x: 1 for x in s}",
    "def f():\n    s = set()\n    return sum(g(x) for x in [*s])",
    "def f(a: set[int], b):\n    for x in a - b: ...",
    "def f(a: set[int], b):\n    for x in a.union(b): ...",
    "def f(a: set[int]):\n    return a.pop()",
    "def f(a: set[int]):\n    return min(a, key=g)",
    "def f(a: set[str]):\n    return ','.join(a)",
    "def f(a: set[str], b):\n    b.extend(a)",
    "def f(a: set[str]):\n    return next(iter(a))",
    "def f(a: set[str]):\n    return sorted([g(x) for x in enumerate(a)])",
    "import asyncio\nasync def f(a: set[str]):\n    await asyncio.gather(*a)",
    "class A:\n    def __init__(self):\n        self.s = set()\n    def f(self):\n        for x in self.s: ...",
    "class A:\n    def f(self):\n        return list(self.s)\n    def g(self):\n        self.s: set[int] = h()",
    "class A:\n    s: set[int]\n    def f(self):\n        return [x for x in self.s]",
    "def f():\n    if (s := set(y)):\n        for x in s: ...",
    "def f(y):\n    s = set(y) or {1}\n    for x in s: ...",
]

CLEAN = [
    "import asyncio\nasync def f(t):\n    await asyncio.wait_for(t, 1)\n    await asyncio.gather(*[t])",
    "import random\nx = random.Random(7).random()",
    "from random import Random\nx = Random(7)",
    "from datetime import datetime, timedelta\nx = datetime(2026, 1, 1) + timedelta(1)",
    "import os\nx = os.strerror(1)",
    "from uuid import UUID\nx = UUID(int=1)",
    "from penstock.simulator import clock\nx = clock.time()",
    "def f(random):\n    return random.choice([1])",
    "class A:\n    def __hash__(self):\n        return hash((self.a, self.b))",
    "def f(row):\n    return row.id",
    "def f(hash):\n    return hash('a')",
    "for x in sorted({1, 2}): ...",
    "def f(s: set[str]):\n    return sorted(x for x in s if x)",
    "def f(s: set[str]):\n    return len(s), max(s), any(g(x) for x in s), 1 in s, {g(x) for x in s}",
    "def f(s: set[str]):\n    s = sorted(s)\n    return list(s)",
    "def f(s: dict[str, int]):\n    return list(s)",
    "def f(s: set[str]):\n    return s | {1}, s.issubset(s)",
    "class A:\n    def __init__(self):\n        self.s = set()\n    def f(self):\n        self.s.discard(1)",
    "class A:\n    def __init__(self):\n        self.s = set()\nclass B:\n    def f(self):\n        list(self.s)",
]


@pytest.mark.parametrize(("rule", "code"), PLANTED)
def test_a_planted_name_is_found(rule: str, code: str) -> None:
    why = (NAMES | METHODS | BUILTINS)[rule]
    assert why in [finding.why for finding in lint(code)], code


def test_every_rule_has_been_seen_to_bite() -> None:
    assert {rule for rule, _ in PLANTED} == {*NAMES, *METHODS, *BUILTINS}


@pytest.mark.parametrize("code", PLANTED_SETS)
def test_a_planted_walk_over_a_set_is_found(code: str) -> None:
    assert SET_ORDER in [finding.why for finding in lint(code)], code


@pytest.mark.parametrize("code", CLEAN)
def test_clean_code_passes(code: str) -> None:
    assert lint(code) == [], code


def test_an_excuse_holds_for_its_line_only() -> None:
    code = "import time  # determinism: prints a date for people\nimport secrets"
    assert [finding.line for finding in lint(code)] == [2]


def test_an_excuse_needs_a_reason_and_something_to_excuse() -> None:
    assert [finding.why for finding in lint("import time  # determinism:")] == [EMPTY_EXCUSE]
    assert [finding.why for finding in lint("x = 1  # determinism: who knows")] == [VAIN_EXCUSE]
