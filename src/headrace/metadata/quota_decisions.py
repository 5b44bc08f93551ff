"""What the controller decides about quotas: set, replaced, removed (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.metadata.changes import Change, QuotaChanged
from headrace.metadata.image import MetadataImage
from headrace.model.errors import ErrorCode, KafkaError
from headrace.security.quota import QuotaEntity

MAX_QUOTAS = 10_000
"""Entities with quotas in a cluster: every broker holds all of them."""


@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    entity: QuotaEntity
    values: Mapping[str, float | None]
    """By name; None to remove it. All are checked already."""


def decide_alter_quotas(
    image: MetadataImage, alterations: Sequence[QuotaAlteration]
) -> tuple[list[KafkaError | None], list[Change]]:
    outcomes: list[KafkaError | None] = []
    after: dict[QuotaEntity, dict[str, float]] = {}
    new = 0
    for one in alterations:
        known = one.entity in image.quotas or one.entity in after
        if not known and len(image.quotas) + new >= MAX_QUOTAS:
            detail = f"The limit of quotas for {MAX_QUOTAS} entities is reached."
            outcomes.append(KafkaError(ErrorCode.INVALID_REQUEST, detail))
            continue
        values = after.setdefault(one.entity, dict(image.quotas.get(one.entity, {})))
        new += not known
        for name, value in one.values.items():
            if value is None:
                values.pop(name, None)
            else:
                values[name] = value
        outcomes.append(None)
    changes: list[Change] = [
        QuotaChanged(entity, values, entity not in image.quotas)
        for entity, values in after.items()
        if values != image.quotas.get(entity, {})
    ]
    return outcomes, changes
