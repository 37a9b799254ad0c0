"""Every declared message, found by importing every module that declares some."""

import pkgutil
from importlib import import_module
from types import ModuleType

from penstock.wire import messages, stored
from penstock.wire.api import Api, request_class, response_class
from penstock.wire.declare import Message


def _declared_in(package: ModuleType) -> list[type[Message]]:
    names = [module.name for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    found = {
        value
        for name in names
        for value in vars(import_module(name)).values()
        if isinstance(value, type) and issubclass(value, Message) and value.__module__ == name
    }
    return sorted(found, key=lambda kind: kind.__name__)


_ASKED_OR_ANSWERED = {of(api) for api in Api for of in (request_class, response_class)}

OTHERS = _declared_in(stored) + [kind for kind in _declared_in(messages) if kind not in _ASKED_OR_ANSWERED]
"""Messages that are neither request nor response: stored keys and values, headers, subscriptions and assignments."""


def version_of(kind: type[Message], choice: int) -> int:
    """The version that a byte chooses."""
    first, last = kind.VERSIONS.first, kind.VERSIONS.last
    return first + choice % (last - first + 1)
