"""DescribeUserScramCredentials (50), v0. Which users have SCRAM credentials, and how strong (KIP-554).

Without names, all users that have some. The response contains nothing of a credential itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from headrace.handlers.context import Context, cluster_describe
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode
from headrace.security.scram import MECHANISM_NUMBERS, ScramCredential
from headrace.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@api(
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    versions=range(1),
    authorize=cluster_describe,
)
def describe_user_scram_credentials(
    ctx: Context, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Returns the users that have SCRAM credentials."""
    users = ctx.broker.metadata.image.users
    counts = Counter(user.name for user in request.users or ()) or Counter(sorted(users))
    return DescribeUserScramCredentialsResponse(
        error_message=None, results=[_describe(user, count, users.get(user)) for user, count in counts.items()]
    )


def _describe(
    user: str, count: int, credentials: Mapping[str, ScramCredential] | None
) -> DescribeUserScramCredentialsResult:
    if count > 1:
        detail = f"The request names the user '{user}' more than once."
        return _failed(user, ErrorCode.DUPLICATE_RESOURCE, detail)
    if credentials is None:
        return _failed(user, ErrorCode.RESOURCE_NOT_FOUND, f"The user '{user}' has no SCRAM credentials.")
    infos = [
        CredentialInfo(mechanism=number, iterations=credentials[mechanism].iterations)
        for number, mechanism in MECHANISM_NUMBERS.items()
        if mechanism in credentials
    ]
    return DescribeUserScramCredentialsResult(user=user, error_message=None, credential_infos=infos)


def _failed(user: str, code: ErrorCode, detail: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=detail)
