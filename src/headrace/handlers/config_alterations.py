"""What AlterConfigs and IncrementalAlterConfigs share: the decision, and an answer per resource."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headrace.config.dynamic_unused import unused_setting
from headrace.config.known_unused import ignored
from headrace.handlers.context import Context
from headrace.metadata.config_decisions import ConfigAlteration
from headrace.model.config_resources import ConfigOperation, ResourceType
from headrace.model.errors import ErrorCode, KafkaError
from headrace.wire.messages.alter_configs import AlterConfigsResourceResponse

_logger = logging.getLogger(__name__)


async def alter(
    ctx: Context, alterations: Sequence[ConfigAlteration], validate_only: bool
) -> list[AlterConfigsResourceResponse]:
    errors: Sequence[KafkaError | None]
    try:
        errors = await ctx.broker.controller.alter_configs(alterations, validate_only)
    except KafkaError as error:
        errors = [error for _ in alterations]
    if not validate_only:
        _warn_of_unused([one for one, error in zip(alterations, errors, strict=True) if error is None])
    return [
        AlterConfigsResourceResponse(
            error_code=error.code if error else ErrorCode.NONE,
            error_message=error.message if error else None,
            resource_type=alteration.resource_type,
            resource_name=alteration.resource_name,
        )
        for alteration, error in zip(alterations, errors, strict=True)
    ]


def _warn_of_unused(alterations: Sequence[ConfigAlteration]) -> None:
    for alteration in alterations:
        for edit in alteration.edits if alteration.resource_type == ResourceType.BROKER else ():
            if edit.operation != ConfigOperation.DELETE and unused_setting(edit.name) is not None:
                _logger.warning("%s", ignored(edit.name))
