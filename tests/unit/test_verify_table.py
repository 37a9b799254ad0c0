"""The table of `penstock verify` runs: only recorded results, with broken rules clearly visible."""

from pathlib import Path
from typing import Any

import pytest

from tests.system import verify_table

MACHINE = {"cores": 2, "memory_gib": 24, "kernel": "Linux 6", "python": "3.11", "java": "openjdk 17"}


def rule(kind: str, looked_at: int, broken: int = 0) -> dict[str, Any]:
    word = "broken" if broken else "kept" if looked_at else "not looked at"
    return {"kind": kind, "rule": f"what {kind} says", "verdict": word, "looked_at": looked_at, "broken": broken}


def row(version: str, *rules: dict[str, Any], bug: str | None = None, question: str | None = None) -> dict[str, Any]:
    is_broken = any(each["broken"] for each in rules)
    return {
        "version": version,
        "bug": bug,
        "verdict": "broken" if is_broken else "undecided" if question else "kept",
        "open_question": question,
        "exit_code": 1 if is_broken else 2 if question else 0,
        "rules": list(rules),
        "acknowledged": 40_000,
        "read": 160_000,
        "longest_wait_s": 2.34,
        "kills": ["a leader, of 2 partitions"],
        "command": "penstock verify -b …",
        "client": "penstock 1",
        "date": "2026-01-01",
        "revision": "abc",
        "machine": MACHINE,
    }


def test_a_row_per_cluster_and_a_line_per_rule() -> None:
    page = verify_table.page(
        {
            "penstock": row("Penstock 1", rule("lost-write", 40_000), rule("G0", 0)),
            "kafka": row("Apache Kafka 4", rule("lost-write", 40_000), rule("G0", 0), question="nobody answers"),
            "planted": row("Penstock 1", rule("lost-write", 40_000, 318), rule("G0", 0), bug="A bug."),
        }
    )
    assert "| Penstock 1 | kept | 0 | 1 | – | 40,000 | 160,000 | 2.3 | a leader, of 2 partitions |" in page
    assert "| Apache Kafka 4 | undecided: nobody answers | 2 | 1 | – |" in page
    assert "| Penstock 1 with a bug | broken | 1 | 0 | lost-write 318 |" in page
    kept = "kept in 40,000"
    assert f"| what lost-write says | `lost-write` | {kept} | {kept} | **broken 318 ×** in 40,000 |" in page
    assert "what G0 says" not in page
    assert "*A bug*." in page
    assert page.count("2 shared cores, 24 GiB") == 1


def test_a_table_is_made_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_table, "RESULTS", tmp_path)
    for name in ("kafka", "penstock"):
        verify_table.write({**verify_table.load(), name: row(name, rule("lost-write", 1))})
    assert list(verify_table.load()) == ["penstock", "kafka"]
    assert (tmp_path / "verify.md").read_text() == verify_table.page(verify_table.load())
