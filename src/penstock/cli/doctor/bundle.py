"""`penstock doctor --bundle`: one ZIP file for a person who helps from afar.

Records and secrets are not in it. Each part is collected by itself: one that cannot be had is named in missing.txt,
with the reason.
"""

import dataclasses
import json
import os
import re
import time
import zipfile
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from penstock.cli.errors import Failed, sentence
from penstock.client.admin.configs import ConfigEntry
from penstock.client.metadata import TopicPartition
from penstock.model.findings import Finding, well

NAMES_MAX = 5
HIDDEN = "(secret)"
_SECRET = re.compile(r".*(password|secret|jaas|credential|keystore\.key).*", re.IGNORECASE)


class Bundle:
    """The parts by file name, and the reasons for those that are missing."""

    def __init__(self) -> None:
        self._parts: dict[str, bytes] = {}
        self._missing: dict[str, str] = {}

    def add(self, name: str, part: object) -> None:
        """Adds a file: bytes and texts as they are, everything else as JSON."""
        if isinstance(part, str | bytes):
            self._parts[name] = part.encode() if isinstance(part, str) else part
        else:
            self._parts[name] = json.dumps(plain(part), indent=2, ensure_ascii=False).encode() + b"\n"

    def lacks(self, name: str, reason: BaseException | str) -> None:
        """Notes a part that could not be collected."""
        text = reason if isinstance(reason, str) else sentence(reason) if isinstance(reason, Exception) else None
        self._missing[name] = text or f"{type(reason).__name__}: {reason}"

    def write(self, path: Path) -> Finding:
        """Writes the file, which only its owner can read; an existing one is left alone."""
        parts = dict(self._parts)
        if self._missing:
            parts["missing.txt"] = "".join(f"{name}: {why}\n" for name, why in sorted(self._missing.items())).encode()
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise Failed(f"{path} is there already: choose another --file") from None
        except OSError as error:
            raise Failed(f"cannot write {path}: {error.strerror}; choose another --file") from error
        with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, part in sorted(parts.items()):
                archive.writestr(name, part)
        text = f"{path} has {len(parts)} files, {path.stat().st_size / 1000:,.1f} kB"
        if self._missing:
            few = ", ".join(sorted(self._missing)[:NAMES_MAX]) + (
                " and others" if len(self._missing) > NAMES_MAX else ""
            )
            text += f"; missing.txt in it says why it lacks {few}"
        return well("bundle", text)


def default_path(now_s: float | None = None) -> Path:
    """A name with the time in UTC, in the current directory."""
    return Path(time.strftime("penstock-bundle-%Y%m%dT%H%M%SZ.zip", time.gmtime(now_s)))


# --- plain data -------------------------------------------------------------------------------------------------------


def hidden(properties: Mapping[str, str]) -> dict[str, str]:
    """The same properties without the values of those that may be secret."""
    return {name: HIDDEN if _SECRET.fullmatch(name) else value for name, value in properties.items()}


def plain(value: object) -> object:
    """What JSON can express of a value: fields by name, bytes in hexadecimal, no value of a sensitive setting."""
    match value:
        case ConfigEntry(is_sensitive=True):
            return {**_fields(value), "value": HIDDEN}
        case TopicPartition() | BaseException():
            return str(value)
        case Enum():
            return value.name
        case bytes():
            return value.hex()
        case Mapping():
            return {str(plain(key)): plain(each) for key, each in value.items()}
        case set() | frozenset():
            return [plain(each) for each in sorted(value)]
        case tuple() | list():
            return [plain(each) for each in value]
    return _fields(value) if dataclasses.is_dataclass(value) else value


def _fields(value: object) -> dict[str, object]:
    assert dataclasses.is_dataclass(value)
    return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
