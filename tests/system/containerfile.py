"""deploy/Containerfile, read by its instructions."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
INSTRUCTIONS: Final = {
    "FROM",
    "WORKDIR",
    "COPY",
    "RUN",
    "ENV",
    "USER",
    "VOLUME",
    "EXPOSE",
    "STOPSIGNAL",
    "HEALTHCHECK",
    "ENTRYPOINT",
    "CMD",
}


def instructions() -> Iterator[tuple[str, str]]:
    """Instructions of the Containerfile, without comments, with continuation lines joined."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Containerfile").read_text(), flags=re.MULTILINE)
    for line in filter(None, re.sub(r"\\\n\s*", "", text).splitlines()):
        name, _, rest = line.partition(" ")
        assert name in INSTRUCTIONS, line
        yield name, rest


def last(name: str) -> str:
    """The arguments of the last instruction with this name."""
    return [rest for each, rest in instructions() if each == name][-1]


def variables() -> dict[str, str]:
    """The environment of a container."""
    return dict(part.split("=", 1) for part in last("ENV").split(" "))
