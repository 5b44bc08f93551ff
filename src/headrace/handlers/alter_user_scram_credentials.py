"""AlterUserScramCredentials (51), v0. Sets or removes users' SCRAM credentials (KIP-554).

There is no SCRAM yet. A request is checked as Kafka checks it; then there is nothing to remove, and a credential
to be set is refused with UNSUPPORTED_VERSION, as by a Kafka whose metadata version is too old for SCRAM. One
result for each user: the first mistake.
"""

from __future__ import annotations

from collections import Counter

from headrace.handlers.context import Context, cluster_alter
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

CredentialChange = ScramCredentialDeletion | ScramCredentialUpsertion
LEAST_ITERATIONS = {1: 4096, 2: 4096}
"""By mechanism: 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512."""
MAX_ITERATIONS = 16_384


@api(
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    versions=range(1),
    authorize=cluster_alter,
)
def alter_user_scram_credentials(
    ctx: Context, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Sets users' SCRAM credentials: not yet, and says so."""
    changes: list[CredentialChange] = [*request.deletions, *request.upsertions]
    counts = Counter(change.name for change in changes)
    errors: dict[str, KafkaError] = {}
    for change in changes:
        errors.setdefault(change.name, _alter(change, counts[change.name]))
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=error.code, error_message=error.message)
            for user, error in errors.items()
        ]
    )


def _alter(change: CredentialChange, count: int) -> KafkaError:
    if not change.name:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "A user's name must not be empty.")
    least = LEAST_ITERATIONS.get(change.mechanism)
    if least is None:
        detail = f"There is no SCRAM mechanism {change.mechanism}."
        return KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, detail)
    if isinstance(change, ScramCredentialDeletion):
        return KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "The user has no such credential.")
    if not least <= change.iterations <= MAX_ITERATIONS:
        detail = f"Iterations must be {least} to {MAX_ITERATIONS}."
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, detail)
    if count > 1:
        detail = "The request changes a user's credentials more than once."
        return KafkaError(ErrorCode.DUPLICATE_RESOURCE, detail)
    return KafkaError(ErrorCode.UNSUPPORTED_VERSION, "This broker has no SCRAM authentication yet.")
