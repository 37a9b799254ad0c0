"""Generates docs/client-reference.md: the public names of `penstock.client`, from signatures and docstrings."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from types import FunctionType, NoneType, UnionType
from typing import Any, ForwardRef, Literal, Union, Unpack, get_args, get_origin, is_typeddict

import penstock.client
from penstock.client import ClientError
from penstock.client.async_client import AsyncClient, Headers, Text
from penstock.client.configuration import config as settings
from penstock.client.configuration.config import ConfigSource
from penstock.client.configuration.options import Sasl
from penstock.client.consumer.consumer import OutOfRangeName, Start
from penstock.client.consumer.reading import IsolationName

SECTIONS = {
    "Clients": ("Client", "SyncClient", "ClientOptions", "Credentials", "ClientPorts"),
    "Producing": ("Producer", "SyncProducer", "Pending", "ProducerOptions", "Published", "Delivery", "Codec"),
    "Reading": ("Consumer", "ConsumerOptions", "FetchSettings", "PartitionRecords", "Message", "At", "Isolation"),
    "Groups": ("GroupConsumer", "GroupConsumerOptions", "GroupSettings"),
    "Topics and administration": ("Admin", "NewTopic", "CreatedTopic", "Topic", "TopicPartition"),
}
ALIASES = {
    "Headers": Headers,
    "Sasl": Sasl,
    "ConfigSource": ConfigSource,
    "Start": Start,
    "OutOfRangeName": OutOfRangeName,
    "IsolationName": IsolationName,
    "Text": Text,
}
"""Types that have a name of their own on the page; what contains another comes first."""
INSIDE = ("reader", "release", "release_producer", "result_of", "claim", "holds", "done")
"""Methods that other parts of the client use."""
CONSTRUCTORS: dict[str, Any] = {
    "ProducerOptions": penstock.client.Producer,
    "ConsumerOptions": penstock.client.Consumer,
    "GroupConsumerOptions": penstock.client.GroupConsumer,
}
"""What gives the defaults of options."""
LINE = 100
BAR = "\\|"

HEAD = """# The client: reference

<!-- Made by `./dev pages` from signatures and docstrings; a test compares. -->

Every public name of `penstock.client`. [The client](client.md) shows how they are used together. A value of a wrong
type is a `TypeError` that names the parameter, what was given and what is expected, before anything is sent; a value
that makes no sense is a `ValueError`. Methods that begin with `await` are those of the asyncio client; `SyncClient` has
the same ones without it.

"""


def page() -> str:
    """The whole page."""
    return "".join([HEAD, *_contents(), *_aliases(), *_sections(), *_settings(), *_errors()])


def _contents() -> Iterator[str]:
    for title in ("Types", *SECTIONS, "Settings", "Errors"):
        yield f"- [{title}](#{title.lower().replace(' ', '-')})\n"


def _aliases() -> Iterator[str]:
    yield "\n## Types\n\nSome types have a name in the signatures below.\n\n| Name | What it is |\n|---|---|\n"
    for name, alias in ALIASES.items():
        yield _row((f"`{name}`", f"`{_written(alias)}`"))


def _sections() -> Iterator[str]:
    for title, names in SECTIONS.items():
        yield f"\n## {title}\n"
        for name in names:
            yield from _entry(name, getattr(penstock.client, name))


def _entry(name: str, kind: Any) -> Iterator[str]:
    yield f"\n### {name}\n\n"
    if name in {"Client", "SyncClient"}:
        yield _code(name, _signature(kind.__init__))
    yield _text(AsyncClient if name == "Client" else kind)
    if issubclass(kind, Enum):
        yield "\n" + ", ".join(f"`{each.name}`" for each in kind) + ".\n"
        return
    if is_dataclass(kind) or is_typeddict(kind) or hasattr(kind, "_fields"):
        yield from _fields(kind)
    yield from _members(kind)


def _fields(kind: Any) -> Iterator[str]:
    said = _said_of_fields(kind)
    defaults = dict(getattr(kind, "_field_defaults", {}))
    if is_dataclass(kind):
        defaults = {each.name: each.default for each in fields(kind) if each.default is not MISSING}
    if (constructor := CONSTRUCTORS.get(kind.__name__)) is not None:
        parameters = inspect.signature(constructor).parameters
        defaults = {name: parameters[name].default for name in inspect.get_annotations(kind)}
    defaults = {name: value for name, value in defaults.items() if not callable(value)}
    columns = {"Name": True, "Type": True, "Default": bool(defaults), "Meaning": bool(said)}
    yield "\n" + _row([name for name, is_there in columns.items() if is_there])
    yield f"|{'---|' * sum(columns.values())}\n"
    for name, annotation in inspect.get_annotations(kind).items():
        default = f"`{_value(defaults[name])}`" if name in defaults else ""
        cells = (f"`{name}`", f"`{_type(annotation)}`", default, said.get(name, ""))
        yield _row([cell for cell, is_there in zip(cells, columns.values(), strict=True) if is_there])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |\n"


def _said_of_fields(kind: type) -> dict[str, str]:
    """The docstrings below fields."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, after in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            found[field.target.id] = " ".join(str(ast.literal_eval(after.value)).split())
    return found


def _members(kind: type) -> Iterator[str]:
    seen: dict[str, Any] = {}
    for each in reversed([base for base in kind.__mro__ if base.__module__.startswith("penstock.client")]):
        seen |= vars(each)
    same = [name for name, member in seen.items() if (getattr(member, "__doc__", None) or "").startswith("As Client.")]
    if same:
        yield f"\nThese are as those of `Client`, without `await`: {', '.join(f'`{name}`' for name in same)}.\n"
    for name, member in seen.items():
        if name.startswith("_") or name in INSIDE or name in same:
            continue
        if isinstance(member, property):
            assert member.fget is not None
            result = _type(inspect.signature(member.fget).return_annotation)
            yield f"\n#### {name}\n\n" + _code("", f"{name}: {result}") + _text(member)
        elif isinstance(member, FunctionType | staticmethod):
            function = member.__func__ if isinstance(member, staticmethod) else member
            start = "await " if inspect.iscoroutinefunction(inspect.unwrap(function)) else ""
            yield f"\n#### {name}\n\n" + _code(f"{start}{name}", _signature(function)) + _text(function)


def _signature(function: Any) -> str:
    """Parameters and result; on a line of its own each if they do not fit into one."""
    signature = inspect.signature(function)
    parts = []
    is_keyword = False
    for each in signature.parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and not is_keyword:
            parts.append("*")
        is_keyword = is_keyword or each.kind in {each.KEYWORD_ONLY, each.VAR_POSITIONAL}
        stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        default = "" if each.default is each.empty else f" = {_value(each.default)}"
        parts.append(f"{stars}{each.name}: {_type(each.annotation)}{default}")
    result = (
        "" if signature.return_annotation in {None, signature.empty} else f" -> {_type(signature.return_annotation)}"
    )
    line = f"({', '.join(parts)}){result}"
    if len(line) <= LINE:
        return line
    rows = "".join(f"    {part},\n" for part in parts)
    return f"(\n{rows}){result}"


def _code(name: str, signature: str) -> str:
    return f"```text\n{name}{signature}\n```\n\n"


def _type(annotation: Any) -> str:
    """A type as it is written, with the names of the page."""
    text = _written(annotation)
    for name, alias in ALIASES.items():
        text = re.sub(rf"(?<![\w'\"]){re.escape(_written(alias))}(?![\w'\"])", name, text)
    return text


def _written(annotation: Any) -> str:
    """A type as it is written in Python."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is None or annotation is NoneType:
        return "None"
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", annotation)
    if isinstance(annotation, list):
        return f"[{', '.join(map(_written, annotation))}]"
    if origin in {Union, UnionType}:
        return " | ".join(map(_written, arguments))
    if origin is Unpack:
        return _written(arguments[0])
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if annotation is Ellipsis:
        return "..."
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(_written, arguments))}]"
    return str(annotation.__name__)


def _value(value: Any) -> str:
    return f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)


def _text(what: Any) -> str:
    """A docstring in Markdown."""
    text = (inspect.getdoc(what) or "").removeprefix("See the module.").strip()
    if not text or text.startswith("One reader"):
        module = inspect.getdoc(inspect.getmodule(what)) or ""
        text = f"{module.partition(chr(10) * 2)[0]} {text}".strip()
    return f"{text}\n"


def _settings() -> Iterator[str]:
    yield (
        "\n## Settings\n\n`Client(config=…)` takes the path of a file in Java's properties format, or a mapping, with "
        "settings under the names\nof Kafka's Java clients. An unknown name is an error, and so is a setting without "
        "effect.\n\n| Setting | Option |\n|---|---|\n"
    )
    for name, meaning in settings.CLIENT.items():
        yield f"| `{name}` | `{meaning.option}` |\n"
    for name, meaning in settings.PRODUCER.items():
        yield f"| `{name}` | `{meaning.option}` of the producer |\n"
    for name in settings.SECURITY:
        yield f"| `{name}` | {'`sasl`' if name.startswith('sasl') else '`tls`'} |\n"


def _errors() -> Iterator[str]:
    yield "\n## Errors\n\n| Error | Is a | Retriable | Meaning |\n|---|---|---|---|\n"
    for name in penstock.client.__all__:
        kind = getattr(penstock.client, name)
        if not issubclass(kind, Exception):
            continue
        base = kind.__mro__[1].__name__
        is_told = not issubclass(kind, ClientError) or kind is ClientError
        retriable = (
            "–" if is_told else "by its code" if issubclass(kind, penstock.client.Refused) else _yes(kind.retries)
        )
        yield _row((f"`{name}`", f"`{base}`", retriable, " ".join((inspect.getdoc(kind) or "").split())))
    yield from _entry("Unpublished", penstock.client.Unpublished)
    yield from _entry("ErrorCode", penstock.client.ErrorCode)


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"
