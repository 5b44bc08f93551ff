"""AlterUserScramCredentials (51): set or remove users' SCRAM credentials (KIP-554)."""

from __future__ import annotations

from headrace.wire.primitives import BYTES, INT8, INT16, INT32, STRING
from headrace.wire.schema import Request, Response, Struct, array, field


class ScramCredentialDeletion(Struct):
    name: str = field(STRING)
    mechanism: int = field(INT8)


class ScramCredentialUpsertion(Struct):
    name: str = field(STRING)
    mechanism: int = field(INT8)
    iterations: int = field(INT32)
    salt: bytes = field(BYTES)
    salted_password: bytes = field(BYTES)


class AlterUserScramCredentialsRequest(Request, key=51, versions=range(1), flexible=0):
    max_elements = 2_000
    deletions: list[ScramCredentialDeletion] = field(array(ScramCredentialDeletion))
    upsertions: list[ScramCredentialUpsertion] = field(array(ScramCredentialUpsertion))


class AlterUserScramCredentialsResult(Struct):
    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)


class AlterUserScramCredentialsResponse(Response, key=51, versions=range(1), flexible=0):
    throttle_time_ms: int = field(INT32)
    results: list[AlterUserScramCredentialsResult] = field(array(AlterUserScramCredentialsResult))
