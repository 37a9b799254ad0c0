"""DescribeUserScramCredentials (key 50): the SCRAM mechanisms of users, never their secrets."""

from collections.abc import Sequence

from penstock.model.errors import ErrorCode
from penstock.wire.declare import Request, Response, Struct
from penstock.wire.types import Int8, Int32


class UserName(Struct):
    name: str


class DescribeUserScramCredentialsRequest(Request, key=50, versions="0", flexible="0+"):
    users: Sequence[UserName] | None


class CredentialInfo(Struct):
    mechanism: Int8
    iterations: Int32


class DescribeUserScramCredentialsResult(Struct):
    user: str
    error_code: ErrorCode
    error_message: str | None
    credential_infos: Sequence[CredentialInfo]


class DescribeUserScramCredentialsResponse(Response, key=50, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: ErrorCode
    error_message: str | None
    results: Sequence[DescribeUserScramCredentialsResult]
