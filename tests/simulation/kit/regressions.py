"""Seeds that failed once, in regressions.txt: each line has a kind of world, a seed and, for mutants, its name.

Seeds without a mutant failed because of bugs in the project. The seed of a mutant is the first that caught it; without
the mutant the same world must pass.
"""

from pathlib import Path

PATH = Path(__file__).with_suffix(".txt")


def lines_of(kind: str) -> list[list[str]]:
    lines = (line.split() for line in PATH.read_text().splitlines() if not line.startswith("#"))
    return [words for words in lines if words and words[0] == kind]


def seeds_of(kind: str) -> list[int]:
    """All seeds of a kind, without duplicates, in order."""
    return sorted({int(words[1]) for words in lines_of(kind)})


def seed_that_caught(kind: str, mutant: str) -> int | None:
    return next((int(words[1]) for words in lines_of(kind) if words[2:] == [mutant]), None)


def remember(kind: str, caught: dict[str, int]) -> None:
    """Replaces the seeds that caught these mutants."""
    kept = [
        line
        for line in PATH.read_text().splitlines()
        if line.split()[:1] != [kind] or line.split()[2:3] not in _of(caught)
    ]
    added = [f"{kind:<23} {seed:<15} {mutant}" for mutant, seed in caught.items()]
    PATH.write_text("\n".join([*kept, *added]) + "\n")


def _of(caught: dict[str, int]) -> list[list[str]]:
    return [[mutant] for mutant in caught]
