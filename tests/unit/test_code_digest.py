"""The digest of a room changes with its code, and not with its docstrings and comments."""

from pathlib import Path

from tests.code_digest import code_digest

CODE = '''"""A module."""

LIMIT = 5
"""A limit."""


class Counter:
    """Counts."""

    def add(self) -> int:
        """Adds one."""
        return LIMIT  # a reason
'''


def digest_of(directory: Path, name: str, code: str) -> str:
    (directory / name).mkdir()
    (directory / name / "counter.py").write_text(code)
    return code_digest(directory / name)


def test_only_code_counts(tmp_path: Path) -> None:
    before = digest_of(tmp_path, "before", CODE)
    other_words = (
        CODE.replace("Counts.", "Something that counts.")
        .replace('"""Adds one."""\n        ', "")
        .replace("  # a reason", "")
    )
    assert digest_of(tmp_path, "words", other_words) == before
    assert digest_of(tmp_path, "limit", CODE.replace("5", "6")) != before
    (tmp_path / "before" / "counter.py").rename(tmp_path / "before" / "counters.py")
    assert code_digest(tmp_path / "before") != before
