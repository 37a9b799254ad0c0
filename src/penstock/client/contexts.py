"""Contexts: clusters that a user has named, each a file of client properties.

    $XDG_CONFIG_HOME/penstock/contexts/NAME.properties   bootstrap.servers, and how to connect there
    $XDG_CONFIG_HOME/penstock/context                    the name of the context in use

Without XDG_CONFIG_HOME, they are below ~/.config. Only the user may read them, because they may hold passwords. Every
file is replaced as a whole: another process reads the old or the new content.
"""

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from penstock.client.properties import parse_properties

BOOTSTRAP = "bootstrap.servers"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SUFFIX = ".properties"
_WRITTEN = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


class Contexts:
    """The contexts of this user."""

    def __init__(self, home: Path | None = None) -> None:
        self._home = _default_home() if home is None else home

    def path(self, name: str) -> Path:
        """The file of a context."""
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a context: it has letters, digits, dots, hyphens and underscores")
        return self._home / "contexts" / f"{name}{_SUFFIX}"

    def names(self) -> list[str]:
        """All names, sorted."""
        try:
            found = [each.name for each in (self._home / "contexts").iterdir()]
        except OSError:
            return []
        names = [name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX)]
        return sorted(name for name in names if NAME.fullmatch(name))

    def load(self, name: str) -> dict[str, str]:
        """The properties of a context; raises ValueError if there is none of this name, or it lacks an address."""
        if not self.path(name).is_file():
            known = ", ".join(self.names())
            advice = f"there are {known}" if known else "`penstock context add NAME -b host:port` makes one"
            raise ValueError(f"there is no context {name}; {advice}")
        properties = read_properties(self.path(name))
        if not properties.get(BOOTSTRAP, "").strip():
            raise ValueError(f"the context {name} lacks {BOOTSTRAP}: see {self.path(name)}")
        return properties

    def in_use(self) -> str | None:
        """The name of the context in use, if there is one and it exists."""
        try:
            name = (self._home / "context").read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return name if NAME.fullmatch(name) and self.path(name).is_file() else None

    def add(self, name: str, properties: Mapping[str, str]) -> None:
        """Writes a context; one of the same name is replaced."""
        _write(self.path(name), properties_text(properties))

    def use(self, name: str | None) -> None:
        """Makes a context the one in use; None: no context is in use."""
        if name is None:
            (self._home / "context").unlink(missing_ok=True)
            return
        self.load(name)
        _write(self._home / "context", f"{name}\n")

    def remove(self, name: str) -> None:
        """Removes a context."""
        self.load(name)
        if self.in_use() == name:
            self.use(None)
        self.path(name).unlink()


def _default_home() -> Path:
    said = os.environ.get("XDG_CONFIG_HOME", "")
    # Path.home() raises for a user without an entry in the password database, as in some containers.
    return (Path(said) if Path(said).is_absolute() else Path(os.path.expanduser("~")) / ".config") / "penstock"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, made = tempfile.mkstemp(prefix=".", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(made).replace(path)
    except BaseException:
        Path(made).unlink(missing_ok=True)
        raise


# --- files of properties ----------------------------------------------------------------------------------------------


def read_properties(path: Path) -> dict[str, str]:
    """The properties in a file; raises ValueError if it cannot be read."""
    try:
        return dict(parse_properties(path.read_text(encoding="utf-8")))
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text in UTF-8: is it the right file?") from None
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}; check the path and its permissions") from error


def properties_text(properties: Mapping[str, str]) -> str:
    """The text of a file with these properties."""
    return "".join(f"{_escaped(name, is_name=True)}={_escaped(value)}\n" for name, value in properties.items())


def _escaped(text: str, *, is_name: bool = False) -> str:
    shown = "".join(_WRITTEN.get(each, each) for each in text)
    if is_name:
        return re.sub(r"([\s=:#!])", r"\\\1", shown)
    return f"\\{shown}" if shown[:1] == " " else shown
