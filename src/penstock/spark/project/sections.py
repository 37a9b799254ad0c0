"""A YAML file as nested sections of texts, in which a misspelt, doubled or missing key is told by name.

Every scalar is a text: what it means is decided where it is used, never by YAML (for which `no` is false and `1:30` is
ninety). `${NAME}` stands for a variable of the environment, so that a file holds no password.
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
    """Something in the file that cannot be meant; the sentence says what to do about it."""


def nearest(name: str, known: Sequence[str]) -> str:
    """How a sentence about an unknown name goes on."""
    if close := difflib.get_close_matches(name, known, n=1, cutoff=_LIKELY):
        return f"did you mean {close[0]}?"
    return f"there are {', '.join(known)}."


class Section:
    """Keys and what they hold. `where` is the way to it, for whoever must find it in the file."""

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
        """The way to a key."""
        return f"{self.where}.{name}"

    def text(self, name: str, otherwise: str | None = None) -> str:
        """A text that must be there unless there is another for this case."""
        found = self._found.get(name, otherwise)
        if found is None:
            raise ProjectError(f"{self.where} lacks {name}.")
        if not isinstance(found, str) or not found:
            raise ProjectError(f"{self.path(name)} must be a text, not {_shown(found)}.")
        return found

    def parsed(self, name: str, parse: Callable[[str], T], otherwise: T) -> T:
        """A text with a meaning; ValueError of `parse` becomes a sentence."""
        if name not in self._found:
            return otherwise
        try:
            return parse(self.text(name))
        except ProjectError:
            raise
        except ValueError as error:
            raise ProjectError(f"{self.path(name)}: {error}.") from None

    def one_of(self, name: str, allowed: Sequence[str], otherwise: str) -> str:
        """One of some words."""
        found = self.text(name, otherwise)
        if found not in allowed:
            raise ProjectError(f"{self.path(name)} cannot be {found}: {nearest(found, allowed)}")
        return found

    def truth(self, name: str, *, otherwise: bool) -> bool:
        """Whether."""
        return self.one_of(name, ("true", "false"), str(otherwise).lower()) == "true"

    def texts(self, name: str, otherwise: Sequence[str] = ()) -> tuple[str, ...]:
        """Several texts; one may stand alone."""
        found = self._found.get(name, list(otherwise))
        if isinstance(found, str):
            found = [part.strip() for part in found.split(",")]
        if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
            raise ProjectError(f"{self.path(name)} must be a list of texts, not {_shown(found)}.")
        return tuple(found)

    def section(self, name: str, known: Sequence[str]) -> "Section":
        """A section below; empty if it is not there."""
        return Section(self._found.get(name, {}), self.path(name), known)

    def pairs(self, name: str) -> dict[str, str]:
        """Names and texts that others know."""
        found = self._found.get(name, {})
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise ProjectError(f"{self.path(name)} must hold names and texts, not {_shown(found)}.")
        return dict(found)

    def raw(self, name: str) -> object:
        """Whatever is there."""
        return self._found.get(name)

    def named(self, name: str) -> Iterator[tuple[str, object]]:
        """Sections whose names the file chooses."""
        found = self._found.get(name, {})
        if not isinstance(found, dict):
            raise ProjectError(f"{self.path(name)} must hold sections by name, not {_shown(found)}.")
        yield from found.items()


def read_yaml(path: Path) -> object:
    """Dictionaries, lists and texts."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ProjectError(f"There is no {path}: `penstock spark init` writes one, -f names another.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ProjectError(f"{path} cannot be read: {error}.") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, name: str) -> object:
    """The same from a text; `name` is for the reader of an error."""
    import yaml

    class Loader(yaml.BaseLoader):
        """Leaves scalars alone."""

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
