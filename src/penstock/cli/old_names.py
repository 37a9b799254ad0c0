"""Commands that have another name now: the old one fails, and names the new one."""

from collections.abc import Callable

import typer

from penstock.cli.errors import Misused

MOVED = {
    ("plan",): "size",
    ("cluster", "up"): "sandbox up",
    ("cluster", "down"): "sandbox down",
    ("cluster", "kill"): "sandbox kill",
    ("cluster", "restart"): "sandbox restart",
    ("cluster", "status"): "sandbox status",
}
_ANY = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def add_to_all(app: typer.Typer) -> None:
    """Adds the old names, hidden, to the program and its groups."""
    groups = {each.name: each.typer_instance for each in app.registered_groups}
    for path, new in MOVED.items():
        place = app if len(path) == 1 else groups[path[0]]
        assert place is not None
        place.command(path[-1], hidden=True, context_settings=_ANY)(_failing(" ".join(path), new))


def _failing(old: str, new: str) -> Callable[[], None]:
    def moved() -> None:
        raise Misused(f"`penstock {old}` is `penstock {new}` now")

    return moved
