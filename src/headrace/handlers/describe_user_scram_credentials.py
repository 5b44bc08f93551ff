"""DescribeUserScramCredentials (50), v0. Which users have SCRAM credentials, and how strong (KIP-554).

There are none yet: a user who is asked for by name does not exist, and all users are an empty list.
"""

from __future__ import annotations

from collections import Counter

from headrace.handlers.context import Context, cluster_describe
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode
from headrace.wire.messages.describe_user_scram_credentials import (
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
    """Tells which users have SCRAM credentials: none yet."""
    counts = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(results=[_describe(*user) for user in counts.items()])


def _describe(user: str, count: int) -> DescribeUserScramCredentialsResult:
    code, detail = ErrorCode.RESOURCE_NOT_FOUND, f"The user '{user}' has no SCRAM credentials."
    if count > 1:
        code, detail = ErrorCode.DUPLICATE_RESOURCE, f"The request names the user '{user}' more than once."
    return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=detail)
