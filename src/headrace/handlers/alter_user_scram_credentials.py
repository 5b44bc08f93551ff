"""AlterUserScramCredentials (51), v0. Sets or removes users' SCRAM credentials (KIP-554).

The client sends the password salted and hashed; what is kept is derived from that, and cannot be used to log
in. One result for each user: the first mistake. All changes of a user are made, or none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from headrace.handlers.context import Context, cluster_alter
from headrace.handlers.forwarding import on_controller
from headrace.handlers.registry import api
from headrace.metadata.user_decisions import UserAlteration
from headrace.model.errors import ErrorCode, KafkaError
from headrace.security.scram import (
    MAX_ITERATIONS,
    MECHANISM_NUMBERS,
    MIN_ITERATIONS,
    ScramCredential,
    credential_of,
)
from headrace.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

CredentialChange = ScramCredentialDeletion | ScramCredentialUpsertion
MAX_USER_NAME = 255


@api(
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    versions=range(1),
    authorize=cluster_alter,
)
@on_controller(AlterUserScramCredentialsResponse)
async def alter_user_scram_credentials(
    ctx: Context, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Sets and removes users' SCRAM credentials."""
    changes: list[CredentialChange] = [*request.deletions, *request.upsertions]
    counts = Counter(change.name for change in changes)
    outcomes: dict[str, KafkaError | None] = dict.fromkeys(counts)
    for change in changes:
        known = ctx.broker.metadata.image.users.get(change.name, {})
        outcomes[change.name] = outcomes[change.name] or _mistake(change, known, counts[change.name])
    wanted = [_alteration(change) for change in changes if outcomes[change.name] is None]
    if wanted:
        try:
            outcomes |= await ctx.broker.controller.alter_users(wanted)
        except KafkaError as error:
            outcomes |= {alteration.user: error for alteration in wanted}
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=user,
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
            )
            for user, error in outcomes.items()
        ]
    )


def _mistake(change: CredentialChange, known: Mapping[str, ScramCredential], count: int) -> KafkaError | None:
    if not 0 < len(change.name) <= MAX_USER_NAME:
        return KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "A user's name must not be empty." if not change.name else "A user's name is too long.",
        )
    if change.mechanism not in MECHANISM_NUMBERS:
        detail = f"There is no SCRAM mechanism {change.mechanism}."
        return KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, detail)
    if isinstance(change, ScramCredentialUpsertion):
        if not MIN_ITERATIONS <= change.iterations <= MAX_ITERATIONS:
            detail = f"Iterations must be {MIN_ITERATIONS} to {MAX_ITERATIONS}."
            return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, detail)
        if not change.salt or not change.salted_password:
            return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "A credential has a salt and a salted password.")
    elif MECHANISM_NUMBERS[change.mechanism] not in known:
        return KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "The user has no such credential.")
    if count > 1:
        detail = "The request changes a user's credentials more than once."
        return KafkaError(ErrorCode.DUPLICATE_RESOURCE, detail)
    return None


def _alteration(change: CredentialChange) -> UserAlteration:
    mechanism = MECHANISM_NUMBERS[change.mechanism]
    if isinstance(change, ScramCredentialDeletion):
        return UserAlteration(change.name, mechanism, None)
    credential = credential_of(mechanism, change.salted_password, change.salt, change.iterations)
    return UserAlteration(change.name, mechanism, credential)
