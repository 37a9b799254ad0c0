"""Identifies the code of a room, without its docstrings and comments: results stay valid when only those change.

python -m tests.code_digest raft
"""

import ast
import hashlib
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "src" / "penstock"
DIGITS = 8


def code_digest(directory: Path) -> str:
    """A digest of all modules below a directory; it depends on the version of Python."""
    total = hashlib.sha256()
    for path in sorted(directory.rglob("*.py")):
        name = path.relative_to(directory).as_posix()
        total.update(f"{name}\n{_code_of(path)}\n".encode())
    return total.hexdigest()[:DIGITS]


def _code_of(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [each for each in node.body if not _is_docstring(each)]
    return ast.dump(tree)


def _is_docstring(node: ast.stmt) -> bool:
    """Also of strings below constants and attributes."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


if __name__ == "__main__":
    print("\n".join(f"{code_digest(SOURCES / room)} {room}" for room in sys.argv[1:]))
