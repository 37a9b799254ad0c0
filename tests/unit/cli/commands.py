"""All commands of `penstock`, by path."""

from collections.abc import Iterator

import typer.main

from penstock.cli.main import app


def commands() -> Iterator[tuple[str, ...]]:
    def below(command: object, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield path
        else:
            for name, each in inner.items():
                if each.hidden:
                    continue  # an old name
                yield from below(each, (*path, name))

    return below(typer.main.get_command(app), ())
