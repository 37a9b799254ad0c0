"""All declared messages."""

import pkgutil
from functools import cache
from importlib import import_module

import penstock.metadata.records
import penstock.wire.messages
import penstock.wire.stored
from penstock.wire.declare import Message


@cache
def declared_messages() -> dict[str, type[Message]]:
    """Every declared message by the name of its class."""
    modules = [penstock.metadata.records.__name__]
    for package in (penstock.wire.messages, penstock.wire.stored):
        modules += [module.name for module in pkgutil.iter_modules(package.__path__, package.__name__ + ".")]
    found: dict[str, type[Message]] = {}
    for module in modules:
        for value in vars(import_module(module)).values():
            if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module:
                assert value.__name__ not in found, f"{value.__name__} is declared twice"
                found[value.__name__] = value
    return found
