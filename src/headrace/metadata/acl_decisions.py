"""What the controller decides about access rules: which are new, and which a filter takes away."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.metadata.changes import AclCreated, AclDeleted, Change
from headrace.metadata.image import MetadataImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.security.acl import Acl, AclFilter

MAX_ACLS = 50_000
"""In a cluster: every broker holds all of them."""


def decide_create_acls(
    image: MetadataImage, wanted: Sequence[Acl | KafkaError]
) -> tuple[list[KafkaError | None], list[Change]]:
    outcomes: list[KafkaError | None] = []
    new: dict[str, Acl] = {}
    for acl in wanted:
        if isinstance(acl, KafkaError):
            outcomes.append(acl)
        elif acl.id in image.acls or acl.id in new:
            outcomes.append(None)
        elif len(image.acls) + len(new) >= MAX_ACLS:
            outcomes.append(
                KafkaError(ErrorCode.INVALID_REQUEST, f"The limit of {MAX_ACLS} access rules is reached.")
            )
        else:
            new[acl.id] = acl
            outcomes.append(None)
    return outcomes, [AclCreated(acl) for acl in new.values()]


def decide_delete_acls(
    image: MetadataImage, filters: Sequence[AclFilter | KafkaError]
) -> tuple[list[list[Acl] | KafkaError], list[Change]]:
    outcomes: list[list[Acl] | KafkaError] = []
    gone: dict[str, None] = {}
    for wanted in filters:
        if isinstance(wanted, KafkaError):
            outcomes.append(wanted)
            continue
        found = {acl_id: acl for acl_id, acl in image.acls.items() if wanted.matches(acl)}
        gone.update(dict.fromkeys(found))
        outcomes.append(sorted(found.values()))
    return outcomes, [AclDeleted(acl_id) for acl_id in gone]
