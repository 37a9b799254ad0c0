"""AlterUserScramCredentials (key 51): sets or removes SCRAM credentials."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int8, Int32


class ScramCredentialDeletion(Struct):
    name: str
    mechanism: Int8


class ScramCredentialUpsertion(Struct):
    name: str
    mechanism: Int8
    iterations: Int32
    salt: bytes
    salted_password: bytes


class AlterUserScramCredentialsRequest(Request, key=51, versions="0", flexible="0+"):
    deletions: Sequence[ScramCredentialDeletion]
    upsertions: Sequence[ScramCredentialUpsertion]


class AlterUserScramCredentialsResult(Struct):
    user: str
    error_code: ErrorCode
    error_message: str | None


class AlterUserScramCredentialsResponse(Response, key=51, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    results: Sequence[AlterUserScramCredentialsResult]
