"""Our codec against Kafka's: every message of the protocol, internal topics and metadata, at every version, both ways.

The messages are random, made from Kafka's schemas and not from our declarations. A failure prints its base seed; to run
it again, put that into `BASES`.
"""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from harness.kafka.oracle import Oracle, binary, text
from penstock.metadata.declare import MetadataRecord
from penstock.metadata.frames import RECORD_TYPES, decode_record, encode_record
from penstock.model.errors import ErrorCode, UnsupportedVersion
from penstock.wire import codec
from penstock.wire.api import ALSO_ON_CONTROLLERS, CONTROLLER_ONLY, Api, request_class, response_class
from penstock.wire.declare import Message, Request, StoredKey, Struct
from tests.compatibility.schema import (
    FieldSpec,
    Json,
    Maker,
    Schema,
    as_written,
    build,
    by_plain_name,
    differences,
    held_struct,
    parse,
    plain,
)
from tests.declared import declared_messages

pytestmark = pytest.mark.peers

MESSAGES_EACH = 8
BASES = ("penstock", secrets.token_hex(4))
"""One seed that is always the same, and one that never is."""


@pytest.fixture(scope="module")
def schemas(oracle: Oracle) -> dict[str, Schema]:
    """Kafka's schemas that still have versions."""
    found = [parse(content) for content in oracle.schemas().values()]
    return {schema.name: schema for schema in found if schema.versions}


def every_version(schemas: dict[str, Schema]) -> Iterator[tuple[Schema, type[Message], int]]:
    ours = declared_messages()
    return ((s, ours[s.name], v) for s in schemas.values() if s.name in ours for v in s.versions)


class Findings(list[str]):
    """Collects differences, so that one run reports all."""

    def settle(self) -> None:
        if self:
            shown = "\n".join(self[:40])
            pytest.fail(f"base seeds {BASES}: {len(self)} differences\n{shown}", pytrace=False)


# --- the tables -------------------------------------------------------------------------------------------------------


def test_both_sides_know_the_same_messages_at_the_same_versions(schemas: dict[str, Schema]) -> None:
    ours = declared_messages()
    assert set(ours) == set(schemas)
    findings = Findings()
    for name, schema in schemas.items():
        message = ours[name]
        flexible = [v for v in schema.versions if v in schema.flexible]
        if list(message.VERSIONS) != list(schema.versions):
            findings.append(f"{name} has versions {schema.versions}, declared are {message.VERSIONS}")
        if [v for v in message.VERSIONS if v in message.FLEXIBLE] != flexible:
            findings.append(f"{name} is flexible in {flexible}, declared is {message.FLEXIBLE}")
        declared_key = getattr(message, "TYPE" if issubclass(message, StoredKey) else "KEY", None)
        if declared_key != schema.api_key:
            findings.append(f"{name} has key {schema.api_key}, declared is {declared_key}")
        if issubclass(message, Request):
            unstable = [schema.versions[-1]] if schema.is_latest_unstable else []
            if [v for v in message.VERSIONS if v in message.UNSTABLE] != unstable:
                findings.append(f"{name} is unstable in {unstable}, declared is {message.UNSTABLE}")
    findings.settle()


def test_the_table_of_apis_is_theirs(oracle: Oracle) -> None:
    theirs = {row["key"]: row for row in oracle.apis() if row["oldest"] <= row["latest"]}
    assert {api.value: (api.name, api.title) for api in Api} == {k: (r["name"], r["title"]) for k, r in theirs.items()}
    for api in Api:
        row, request = theirs[api], request_class(api)
        stable = [v for v in request.VERSIONS if v not in request.UNSTABLE]
        assert request.VERSIONS == response_class(api).VERSIONS
        assert (request.VERSIONS.first, request.VERSIONS.last) == (row["oldest"], row["latest"]), api
        assert max(stable, default=-1) == row["latest_stable"], api
        listeners = {"CONTROLLER"} if api in CONTROLLER_ONLY else {"BROKER"}
        assert listeners | ({"CONTROLLER"} if api in ALSO_ON_CONTROLLERS else set()) == set(row["listeners"]), api


def test_the_table_of_errors_is_theirs(oracle: Oracle) -> None:
    theirs = {(row["code"], row["name"], row["is_retriable"]) for row in oracle.errors()}
    assert {(code.value, code.name, code.is_retriable) for code in ErrorCode} == theirs


# --- random messages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", BASES, ids=["fixed", "fresh"])
def test_random_messages_are_the_same_bytes_on_both_sides(
    oracle: Oracle, schemas: dict[str, Schema], base: str
) -> None:
    """We read their messages and they read ours; every field agrees, and both write the same bytes."""
    cases = list(every_version(schemas))
    made = [_messages(base, schema, version) for schema, _, version in cases]
    findings = Findings()

    encoded = oracle.ask_all(_question("encode", case, json=values) for case, values in zip(cases, made, strict=True))
    for case, values, answer in zip(cases, made, encoded, strict=True):
        for index, (value, theirs) in enumerate(zip(values, answer["bytes"], strict=True)):
            where = f"{case[0].name} v{case[2]} {base}#{index}"
            findings += [f"{where} written by them: {what}" for what in _read_and_write(case, value, theirs)]

    written = [[_written(case, value) for value in values] for case, values in zip(cases, made, strict=True)]
    decoded = oracle.ask_all(
        _question("decode", case, bytes=[text(w) if isinstance(w, bytes) else "" for w in ours])
        for case, ours in zip(cases, written, strict=True)
    )
    for case, values, ours, answer in zip(cases, made, written, decoded, strict=True):
        schema, _, version = case
        for index, (value, mine) in enumerate(zip(values, ours, strict=True)):
            where = f"{schema.name} v{version} {base}#{index} written by us"
            theirs, again = answer["json"][index], answer["bytes"][index]
            if isinstance(mine, str):
                findings.append(f"{where}: {mine}")
            elif theirs != (expected := as_written(schema.fields, version, value)):
                findings.append(f"{where}: they read {_short(theirs)} and not {_short(expected)}")
            elif binary(again) != mine:
                findings.append(f"{where}: they write it again as other bytes")
    findings.settle()


def test_unknown_tagged_fields_are_skipped(oracle: Oracle, schemas: dict[str, Schema]) -> None:
    """Each struct of each flexible message carries unknown tags; we skip them and lose nothing else."""
    cases = [case for case in every_version(schemas) if case[2] in case[0].flexible]
    made = [_messages("tags", schema, version)[:5] for schema, _, version in cases]
    questions = [
        _question("encode", case, json=values, with_unknown_tags=True) for case, values in zip(cases, made, strict=True)
    ]
    findings = Findings()
    for case, values, answer in zip(cases, made, oracle.ask_all(questions), strict=True):
        schema, message, version = case
        for index, (value, theirs) in enumerate(zip(values, answer["bytes"], strict=True)):
            where = f"{schema.name} v{version} tags#{index}"
            bare = _written(case, value)
            if not isinstance(theirs, str) or bare == binary(theirs):
                findings.append(f"{where}: they did not add unknown tags: {theirs}")
                continue
            try:
                ours = codec.decode(message, version, binary(theirs))
            except Exception as error:
                findings.append(f"{where}: {error!r}")
                continue
            findings += [f"{where}: {d}" for d in differences(schema.fields, version, schema.versions, value, ours)]
            if bytes(codec.encode(ours, version)) != bare:
                findings.append(f"{where}: written again, it is not the message without unknown tags")
    findings.settle()


def test_a_field_that_a_version_lacks_is_dropped_or_refused_as_they_do(
    oracle: Oracle, schemas: dict[str, Schema]
) -> None:
    """An ignorable field may be dropped for an old version; any other must not be."""
    cases, made = [], []
    for case in every_version(schemas):
        schema, message, version = case
        values = list(_with_one_absent_field(schema, message, version))
        if values:
            cases.append(case)
            made.append(values)
    findings = Findings()
    questions = [
        _question("encode", case, json=[value for *_, value in values])
        for case, values in zip(cases, made, strict=True)
    ]
    for case, values, answer in zip(cases, made, oracle.ask_all(questions), strict=True):
        schema, message, version = case
        for (path, field, value), theirs in zip(values, answer["bytes"], strict=True):
            where = f"{schema.name} v{version} with {path}"
            try:
                ours: bytes | None = bytes(codec.encode(_message(message, schema, value), version))
            except UnsupportedVersion:
                ours = None
            if isinstance(theirs, str):
                if ours != binary(theirs):
                    findings.append(f"{where}: they drop the field, we {'refuse' if ours is None else 'err'}")
            elif theirs["message"].startswith("Attempted to write a non-default"):
                if ours is not None:
                    findings.append(f"{where}: they refuse, we drop the field")
            elif theirs["message"].startswith("Can't read version"):
                # Their JSON lacks the struct at this version: the schema decides.
                if (ours is not None) != field.ignorable:
                    findings.append(
                        f"{where}: ignorable is {field.ignorable}, we {'refuse' if ours is None else 'drop'}"
                    )
            else:
                findings.append(f"{where}: they fail with {theirs}")
    assert sum(len(values) for values in made) > 500
    findings.settle()


def test_metadata_records_lie_in_their_frame(oracle: Oracle, schemas: dict[str, Schema]) -> None:
    """The frame of the metadata log around the same random records: same bytes, and decoded to the same record."""
    cases = [case for case in every_version(schemas) if case[0].kind == "metadata"]
    assert {case[1].KEY for case in cases if issubclass(case[1], MetadataRecord)} == set(RECORD_TYPES)
    made = [_messages("frame", schema, version) for schema, _, version in cases]
    framed = oracle.ask_all(_question("frame", case, json=values) for case, values in zip(cases, made, strict=True))
    findings = Findings()
    for (schema, message, version), values, answer in zip(cases, made, framed, strict=True):
        for index, (value, theirs) in enumerate(zip(values, answer["bytes"], strict=True)):
            where = f"{schema.name} v{version} frame#{index}"
            record = _message(message, schema, value)
            assert isinstance(record, MetadataRecord)
            if encode_record(record, version) != binary(theirs):
                findings.append(f"{where}: we frame it in other bytes")
            elif decode_record(binary(theirs)) != record:
                findings.append(f"{where}: read back, it is {_short(decode_record(binary(theirs)))}")
    findings.settle()


# --- helpers ----------------------------------------------------------------------------------------------------------

Case = tuple[Schema, type[Message], int]


def _messages(base: str, schema: Schema, version: int) -> list[Json]:
    maker = Maker(f"{base} {schema.name} {version}")
    return [maker.message(schema, version) for _ in range(MESSAGES_EACH)]


def _question(command: str, case: Case, **rest: object) -> Json:
    return {"command": command, "message": case[0].name, "version": case[2], **rest}


def _message(message: type[Message], schema: Schema, value: Json) -> Message:
    built = build(message, schema.fields, value)
    assert isinstance(built, Message)
    return built


def _written(case: Case, value: Json) -> bytes | str:
    """Our bytes, or why there are none."""
    schema, message, version = case
    try:
        return bytes(codec.encode(_message(message, schema, value), version))
    except Exception as error:
        return f"we cannot write it: {error!r}"


def _read_and_write(case: Case, value: Json, theirs: Any) -> Iterator[str]:
    schema, message, version = case
    if not isinstance(theirs, str):
        yield f"they cannot write it: {theirs}"
        return
    data = binary(theirs)
    try:
        ours = codec.decode(message, version, data)
        again = codec.encode(ours, version)
    except Exception as error:
        yield f"we cannot read it: {error!r}"
        return
    yield from differences(schema.fields, version, schema.versions, value, ours)
    if again != data:
        yield f"we write {again.hex()[:200]} and not {data.hex()[:200]}"


def _short(value: object) -> str:
    shown = str(value)
    return shown if len(shown) < 300 else shown[:300] + "…"


def _with_one_absent_field(
    schema: Schema, message: type[Message], version: int
) -> Iterator[tuple[str, FieldSpec, Json]]:
    """A full message for each field that the version lacks, in which that field has a value all the same."""

    def places(fields: tuple[FieldSpec, ...], ours: type[Struct], path: tuple[FieldSpec, ...]) -> Iterator[Any]:
        own = by_plain_name(ours)
        for field in fields:
            if version in field.versions and field.fields is not None:
                yield from places(field.fields, held_struct(own[plain(field.name)]), (*path, field))
            elif version not in field.versions and plain(field.name) in own:
                yield path, field

    for path, field in places(schema.fields, message, ()):
        maker = Maker(f"absent {schema.name} {version}")
        maker.made = 1  # nothing left out, so that the path exists
        value = maker.message(schema, version)
        target = value
        for step in path:
            inner = target[step.json_name]
            target = inner[-1] if step.is_array else inner
        target[field.json_name] = _unlike_default(field, version)
        yield ".".join(f.json_name for f in (*path, field)), field, value


def _unlike_default(field: FieldSpec, version: int) -> Any:
    """A value other than the default. A struct has all its fields: a version that lacks it lacks them too."""
    maker = Maker("unlike")
    maker.mood = "most"
    while True:
        value = (
            maker.item(field, version)
            if field.fields is None
            else {f.json_name: _unlike_default(f, version) for f in field.fields}
        )
        value = [value] if field.is_array else value
        if value != field.default:
            return value
