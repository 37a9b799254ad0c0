"""Client properties with Java's names, which `--command-config`, contexts and `-X` take: those that have an effect."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

import typer

from penstock.cli.errors import Misused
from penstock.client.configuration.config import CLIENT, SECURITY
from penstock.client.contexts import read_properties

EFFECTIVE = (*CLIENT, *SECURITY)
"""The properties that decide how a command connects."""
_SECRET = re.compile(r".*(password|jaas\.config|keystore\.key)")
_LIKELY = 0.85


def properties_of(file: Path | None, pairs: Mapping[str, str]) -> dict[str, str]:
    """The properties of --command-config and -X. Those of the file without an effect are named and left out."""
    for name, meant in without_effect(pairs).items():
        raise Misused(f"-X {name} has no effect here" + (f"; do you mean {meant}?" if meant else ": leave it out"))
    of_file = {} if file is None else read_properties(file)
    if unused := without_effect(of_file):
        typer.echo(f"{file}: {', '.join(unused)} {'have' if len(unused) > 1 else 'has'} no effect here.", err=True)
    return {name: value for name, value in of_file.items() if name not in unused} | dict(pairs)


def without_effect(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that have no effect here, each with the name that may be meant, or an empty string."""
    names = [name for name in properties if name not in EFFECTIVE]
    return {name: next(iter(get_close_matches(name, EFFECTIVE, 1, _LIKELY)), "") for name in names}


def is_secret(name: str) -> bool:
    """Whether the value is not for a terminal."""
    return _SECRET.fullmatch(name) is not None
