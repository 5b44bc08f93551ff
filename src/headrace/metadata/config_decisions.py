"""What a controller does about dynamic settings of topics, brokers and groups: pure, one outcome per resource.

An outcome is the resource's settings as they will be, or the `KafkaError` it gets. Codes are Kafka's: a bad topic
setting, or a group's, is INVALID_CONFIG; anything wrong with a broker's (read-only, bad value) is INVALID_REQUEST.
Kafka keeps any name for a broker; here an unknown one is INVALID_CONFIG, since it can only be a mistake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.config.dynamic_unused import DYNAMIC_UNUSED
from headrace.config.group_config import GroupLimits
from headrace.config.settings import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    ConfigError,
    ConfigType,
    UnknownConfig,
    Value,
    value_text,
)
from headrace.config.topic_config import check_broker_overrides, check_topic_overrides
from headrace.metadata.changes import BrokerConfigured, GroupConfigured, TopicConfigured
from headrace.metadata.image import MetadataImage
from headrace.model.config_resources import ConfigOperation, ResourceType
from headrace.model.errors import ErrorCode, KafkaError
from headrace.model.topics import check_topic_name

MAX_EDITS = 1_000
"""The limit of edits of one resource: there are fewer settings, and each may be named once."""


@dataclass(frozen=True, slots=True)
class ConfigEdit:
    name: str
    operation: int
    """A `ConfigOperation`, or a number that the peer made up."""
    value: str | None


@dataclass(frozen=True, slots=True)
class ConfigAlteration:
    resource_type: int
    """A `ResourceType`, or a number that the peer made up."""
    resource_name: str
    edits: Sequence[ConfigEdit]
    replace_all: bool = False
    """Whether this is the legacy AlterConfigs: other settings return to their defaults; all edits are SET."""


ConfigChange = TopicConfigured | BrokerConfigured | GroupConfigured
ConfigOutcome = ConfigChange | KafkaError


def decide_alter_configs(
    image: MetadataImage,
    alterations: Sequence[ConfigAlteration],
    defaults: Mapping[str, Value],
    limits: GroupLimits,
) -> list[ConfigOutcome]:
    """`defaults` are the values for a topic without settings of its own; `limits` are for group settings."""
    counts = Counter((alteration.resource_type, alteration.resource_name) for alteration in alterations)
    outcomes: list[ConfigOutcome] = []
    for alteration in alterations:
        try:
            if counts[alteration.resource_type, alteration.resource_name] > 1:
                raise _invalid("The request names this resource more than once.")
            outcomes.append(_decide(image, alteration, defaults, limits))
        except KafkaError as error:
            outcomes.append(error)
    return outcomes


def _decide(
    image: MetadataImage, alteration: ConfigAlteration, defaults: Mapping[str, Value], limits: GroupLimits
) -> ConfigChange:
    _check_edits(alteration.edits)
    match alteration.resource_type:
        case ResourceType.TOPIC:
            return _decide_topic(image, alteration, defaults)
        case ResourceType.BROKER:
            return _decide_broker(image, alteration)
        case ResourceType.GROUP:
            return _decide_group(image, alteration, limits)
        case unknown:
            raise _invalid(f"Settings of resource type {unknown} cannot be altered.")


def _decide_topic(
    image: MetadataImage, alteration: ConfigAlteration, defaults: Mapping[str, Value]
) -> TopicConfigured:
    name = alteration.resource_name
    if not name:
        raise _invalid("A topic's settings need the topic's name.")
    check_topic_name(name)
    topic = image.topics.get(name)
    lists = {
        key: value_text(defaults[key]) or "" for key, row in TOPIC_SETTINGS.items() if row.type is ConfigType.LIST
    }
    configs = _edited(topic.configs if topic else {}, alteration, lists)
    check_topic_overrides(configs, defaults)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
    return TopicConfigured(name, configs)


def _decide_broker(image: MetadataImage, alteration: ConfigAlteration) -> BrokerConfigured:
    name = alteration.resource_name
    _check_broker_name(image, name)
    before = image.broker_configs.get(name)
    rows = BROKER_SETTINGS | DYNAMIC_UNUSED
    lists = {key: row.default or "" for key, row in rows.items() if row.type is ConfigType.LIST}
    configs = _edited(before or {}, alteration, lists)
    try:
        check_broker_overrides(configs, every_broker=not name)
    except UnknownConfig:
        raise
    except ConfigError as error:
        raise _invalid(str(error)) from error
    return BrokerConfigured(name, configs, first_time=before is None)


def _decide_group(image: MetadataImage, alteration: ConfigAlteration, limits: GroupLimits) -> GroupConfigured:
    """The settings of a group, which need not exist: they can be set before, and stay when it is deleted."""
    name = alteration.resource_name
    if not name:
        raise _invalid("A group's settings need the group's id.")
    before = image.group_configs.get(name)
    configs = _edited(before or {}, alteration, {})
    limits.check(configs)
    return GroupConfigured(name, configs, first_time=before is None)


def _check_broker_name(image: MetadataImage, name: str) -> None:
    if not name:
        return
    if not (name.isascii() and name.isdigit()):
        raise _invalid(f"A broker's settings need its id, not '{name}'.")
    if int(name) not in image.brokers or name != str(int(name)):
        raise _invalid(f"No broker with id {name} is registered.")


def _check_edits(edits: Sequence[ConfigEdit]) -> None:
    if len(edits) > MAX_EDITS:
        raise _invalid(f"The request names more than {MAX_EDITS:,} settings of one resource.")
    if len({edit.name for edit in edits}) < len(edits):
        raise _invalid("The request names a setting more than once.")
    nulls = [edit.name for edit in edits if edit.value is None and edit.operation != ConfigOperation.DELETE]
    if nulls:
        raise _invalid(f"A setting cannot be null: {', '.join(nulls)}")


def _edited(before: Mapping[str, str], alteration: ConfigAlteration, lists: Mapping[str, str]) -> dict[str, str]:
    """The settings after the edits; `lists` are the settings that can be appended to, with their defaults."""
    configs = {} if alteration.replace_all else dict(before)
    for edit in alteration.edits:
        match edit.operation:
            case ConfigOperation.SET:
                configs[edit.name] = edit.value or ""
            case ConfigOperation.DELETE:
                configs.pop(edit.name, None)
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
                configs[edit.name] = _edited_list(edit, configs.get(edit.name), lists)
            case unknown:
                raise _invalid(f"There is no operation {unknown} on settings.")
    return configs


def _edited_list(edit: ConfigEdit, before: str | None, lists: Mapping[str, str]) -> str:
    if edit.name not in lists:
        verb = ConfigOperation(edit.operation).name
        raise ConfigError(f"{verb} needs a list, which {edit.name} is not.")
    members = dict.fromkeys(_members(lists[edit.name] if before is None else before))
    given = dict.fromkeys(_members(edit.value or ""))
    if edit.operation == ConfigOperation.APPEND:
        return ",".join(members | given)
    return ",".join(member for member in members if member not in given)


def _members(text: str) -> list[str]:
    return [member.strip() for member in text.split(",") if member.strip()]


def _invalid(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, detail)
