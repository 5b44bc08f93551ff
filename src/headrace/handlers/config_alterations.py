"""What AlterConfigs and IncrementalAlterConfigs share: the decision, and an answer per resource."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.handlers.context import Context
from headrace.metadata.config_decisions import ConfigAlteration
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.messages.alter_configs import AlterConfigsResourceResponse


async def alter(
    ctx: Context, alterations: Sequence[ConfigAlteration], validate_only: bool
) -> list[AlterConfigsResourceResponse]:
    errors: Sequence[KafkaError | None]
    try:
        errors = await ctx.broker.controller.alter_configs(alterations, validate_only)
    except KafkaError as error:
        errors = [error for _ in alterations]
    return [
        AlterConfigsResourceResponse(
            error_code=error.code if error else ErrorCode.NONE,
            error_message=error.message if error else None,
            resource_type=alteration.resource_type,
            resource_name=alteration.resource_name,
        )
        for alteration, error in zip(alterations, errors, strict=True)
    ]
