"""What the controller decides about users' SCRAM credentials: set, replaced, removed (KIP-554)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.metadata.changes import Change, UserChanged
from headrace.metadata.image import MetadataImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.security.scram import ScramCredential

MAX_USERS = 10_000
"""In a cluster: every broker holds all of them."""


@dataclass(frozen=True, slots=True)
class UserAlteration:
    user: str
    mechanism: str
    credential: ScramCredential | None
    """None to remove it."""


def decide_alter_users(
    image: MetadataImage, alterations: Sequence[UserAlteration]
) -> tuple[dict[str, KafkaError | None], list[Change]]:
    """All changes of a user are made, or none of them."""
    outcomes: dict[str, KafkaError | None] = {}
    changes: list[Change] = []
    new = 0
    for user in dict.fromkeys(one.user for one in alterations):
        known = image.users.get(user, {})
        credentials = dict(known)
        error = None
        for one in alterations:
            if one.user != user:
                continue
            if one.credential is not None:
                credentials[one.mechanism] = one.credential
            elif credentials.pop(one.mechanism, None) is None:
                error = KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "The user has no such credential.")
        if error is None and not known and len(image.users) + new >= MAX_USERS:
            error = KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"The limit of {MAX_USERS} users is reached.")
        outcomes[user] = error
        if error is None:
            new += not known
            changes.append(UserChanged(user, credentials, not known))
    return outcomes, changes
