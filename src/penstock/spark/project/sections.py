"""A YAML file as nested sections of strings; a misspelt, doubled or missing key is reported by name.

Every scalar is a string: its meaning is decided where it is used, never by YAML (for which `no` is false and `1:30` is
ninety). `${NAME}` stands for an environment variable, so that a file need not hold a password.
"""

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_LIKELY = 0.6


class ProjectError(ValueError):
    """An error in the file; the message says how to correct it."""


def nearest(name: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown name: the closest name, or all known names."""
    if close := difflib.get_close_matches(name, known, n=1, cutoff=_LIKELY):
        return f"did you mean {close[0]}?"
    return f"there are {', '.join(known)}."


class Section:
    """Keys and their values. `where` is the path of the section, for error messages."""

    def __init__(self, found: object, where: str, known: Sequence[str]) -> None:
        self.where = where
        if not isinstance(found, dict):
            raise ProjectError(f"{where} must hold keys, such as {known[0]}, not {_shown(found)}.")
        for name in found:
            if name not in known:
                raise ProjectError(f"{where} has no key {name}: {nearest(name, known)}")
        self._found: Mapping[str, Any] = found

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def path(self, name: str) -> str:
        """The path of a key."""
        return f"{self.where}.{name}"

    def text(self, name: str, otherwise: str | None = None) -> str:
        """A string, required unless `otherwise` is given."""
        found = self._found.get(name, otherwise)
        if found is None:
            raise ProjectError(f"{self.where} lacks {name}.")
        if not isinstance(found, str) or not found:
            raise ProjectError(f"{self.path(name)} must be a text, not {_shown(found)}.")
        return found

    def parsed(self, name: str, parse: Callable[[str], T], otherwise: T) -> T:
        """A string converted by `parse`, whose ValueError becomes a ProjectError."""
        if name not in self._found:
            return otherwise
        try:
            return parse(self.text(name))
        except ProjectError:
            raise
        except ValueError as error:
            raise ProjectError(f"{self.path(name)}: {error}.") from None

    def one_of(self, name: str, allowed: Sequence[str], otherwise: str) -> str:
        """One of the allowed strings."""
        found = self.text(name, otherwise)
        if found not in allowed:
            raise ProjectError(f"{self.path(name)} cannot be {found}: {nearest(found, allowed)}")
        return found

    def truth(self, name: str, *, otherwise: bool) -> bool:
        """A boolean."""
        return self.one_of(name, ("true", "false"), str(otherwise).lower()) == "true"

    def texts(self, name: str, otherwise: Sequence[str] = ()) -> tuple[str, ...]:
        """A list of strings, or one string of comma-separated parts."""
        found = self._found.get(name, list(otherwise))
        if isinstance(found, str):
            found = [part.strip() for part in found.split(",")]
        if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
            raise ProjectError(f"{self.path(name)} must be a list of texts, not {_shown(found)}.")
        return tuple(found)

    def section(self, name: str, known: Sequence[str]) -> "Section":
        """A nested section; empty if it is missing."""
        return Section(self._found.get(name, {}), self.path(name), known)

    def pairs(self, name: str) -> dict[str, str]:
        """Names and strings that are not checked here."""
        found = self._found.get(name, {})
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise ProjectError(f"{self.path(name)} must hold names and texts, not {_shown(found)}.")
        return dict(found)

    def raw(self, name: str) -> object:
        """The value as it is."""
        return self._found.get(name)

    def named(self, name: str) -> Iterator[tuple[str, object]]:
        """The nested sections of a section whose names the file chooses."""
        found = self._found.get(name, {})
        if not isinstance(found, dict):
            raise ProjectError(f"{self.path(name)} must hold sections by name, not {_shown(found)}.")
        yield from found.items()


def read_yaml(path: Path) -> object:
    """Reads a file into dictionaries, lists and strings."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ProjectError(f"There is no {path}: `penstock spark init` writes one, -f names another.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ProjectError(f"{path} cannot be read: {error}.") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, name: str) -> object:
    """Like `read_yaml`, from a string; `name` is for error messages."""
    import yaml

    class Loader(yaml.BaseLoader):
        """Leaves scalars as strings, and refuses doubled keys."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = [key.value for key, _ in node.value]
            if doubled := [key for key in keys if keys.count(key) > 1]:
                line = node.start_mark.line + 1
                raise ProjectError(f"{name}: the section that begins in line {line} has {doubled[0]} twice.")
            return super().construct_mapping(node, deep=deep)

    try:
        found = yaml.load(text, Loader)  # noqa: S506 - BaseLoader makes nothing but texts, lists and dictionaries
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
        problem = getattr(error, "problem", None) or error
        raise ProjectError(f"{name} is not YAML{place}: {problem}.") from None
    return _substituted(found, name)


def _substituted(found: object, name: str) -> object:
    match found:
        case dict():
            return {key: _substituted(value, name) for key, value in found.items()}
        case list():
            return [_substituted(each, name) for each in found]
        case str():
            return _VARIABLE.sub(lambda variable: _environment(variable[1], name), found)
    return found


def _environment(variable: str, name: str) -> str:
    value = os.environ.get(variable)
    if value is None:
        raise ProjectError(f"{name} asks for the variable {variable}, which is not set: export {variable}=…")
    return value


def _shown(found: object) -> str:
    return "nothing" if found in (None, "") else repr(found)
