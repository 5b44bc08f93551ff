"""Users' SCRAM credentials, as a client sets and lists them. The password never leaves the client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import Outcome, kafka_error
from headrace.security.scram import MECHANISM_NUMBERS, salted_password
from headrace.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

NUMBERS = {name: number for number, name in MECHANISM_NUMBERS.items()}


class UserCredential(NamedTuple):
    user: str
    mechanism: str
    iterations: int


async def list_users(cluster: Cluster) -> list[UserCredential]:
    request = DescribeUserScramCredentialsRequest(users=None)
    response = await (await cluster.entry()).request(request, DescribeUserScramCredentialsResponse)
    if response.error_code:
        raise kafka_error(response.error_code, response.error_message)
    return [
        UserCredential(result.user, MECHANISM_NUMBERS.get(info.mechanism, str(info.mechanism)), info.iterations)
        for result in response.results
        for info in result.credential_infos
    ]


async def set_password(
    cluster: Cluster, user: str, mechanism: str, password: str, salt: bytes, iterations: int
) -> None:
    salted = salted_password(mechanism, password, salt, iterations)
    upsertion = ScramCredentialUpsertion(
        name=user, mechanism=NUMBERS[mechanism], iterations=iterations, salt=salt, salted_password=salted
    )
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
    response = await (await cluster.entry()).request(request, AlterUserScramCredentialsResponse)
    (result,) = response.results
    if result.error_code:
        raise kafka_error(result.error_code, result.error_message)


async def remove_credentials(cluster: Cluster, credentials: Sequence[UserCredential]) -> dict[str, Outcome]:
    """For each user its error or None. A request changes one credential of a user."""
    outcomes: dict[str, Outcome] = {}
    for one in credentials:
        deletion = ScramCredentialDeletion(name=one.user, mechanism=NUMBERS[one.mechanism])
        request = AlterUserScramCredentialsRequest(deletions=[deletion])
        response = await (await cluster.entry()).request(request, AlterUserScramCredentialsResponse)
        (result,) = response.results
        error = kafka_error(result.error_code, result.error_message) if result.error_code else None
        outcomes[one.user] = outcomes.get(one.user) or error
    return outcomes
