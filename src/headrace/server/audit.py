"""The audit trail: who changed what, as lines of the logger `headrace.audit` that programs can read.

    audit event=changed principal=User:alice host=10.1.2.3 client=app api=CreateTopics topic=orders partitions=3
    audit event=refused principal=User:bob host=10.1.2.4 client=app api=DeleteTopics topic=orders
        result=TOPIC_AUTHORIZATION_FAILED

One line (here two for the page) for each thing that a request was about. Values that are not single words are
quoted as JSON. Nothing secret is in them: of a password only that there is one, of a sensitive setting its name.
Denied requests and failed logins (`authorization.guard`, `authentication`) are lines of the same form; of these
and of refused changes, equal ones are summed up. A request that a broker sends on to the controller is told by the
broker that it came to.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from headrace.config.settings import BROKER_SETTINGS
from headrace.env import Clock
from headrace.handlers.context import Context
from headrace.handlers.registry import Api, ColdHandler
from headrace.model.config_resources import ResourceType
from headrace.model.errors import ErrorCode, KafkaError
from headrace.security.acl import Operation, Pattern, Permission, Resource
from headrace.security.quota import entity_text
from headrace.security.scram import MECHANISM_NUMBERS
from headrace.server.audit_lines import MAX_VALUE, audit, pairs
from headrace.server.line_limit import LineLimit
from headrace.wire.api_keys import ApiKey
from headrace.wire.schema import Response

MAX_LINES = 100
"""The limit of lines for one request; the rest is counted."""

AuditSubject = tuple[object, dict[str, object]]
"""The key of a thing in the results, and the fields of its line."""
AuditResults = Iterable[tuple[object, int]]


class AuditTrail:
    def __init__(self, clock: Clock, is_broker: Callable[[str, bytes, str], bool]) -> None:
        self._is_broker = is_broker
        self._lines = LineLimit(clock, audit)
        """The limit of lines about refused requests, which anybody can cause without end."""

    def cold(self, api: Api, handle: ColdHandler) -> ColdHandler:
        """The handler with its audit lines if the API changes something; any other handler unchanged."""
        told = CHANGES.get(api.key)
        if told is None:
            return handle
        subjects, results = told

        async def audited(context: Context, request: Any) -> Response:
            if self._is_broker(context.principal, (context.client_id or "").encode(), context.client_host):
                return await _answer(handle(context, request))
            asked, more = await _first(context, () if _only_checks(request) else subjects(request))
            try:
                response: Any = await _answer(handle(context, request))
            except KafkaError as error:
                self._tell(context, api, asked, more, {}, error.code)
                raise
            whole = getattr(response, "error_code", ErrorCode.NONE)
            told_of = {key for key, _ in asked}
            ended = {key: code async for key, code in context.each(results(response)) if key in told_of}
            self._tell(context, api, asked, more, ended, whole)
            answered: Response = response
            return answered

        return audited

    def _tell(
        self,
        context: Context,
        api: Api,
        asked: list[AuditSubject],
        more: int,
        results: Mapping[object, int],
        whole: int,
    ) -> None:
        who = {"principal": context.principal, "host": context.client_host, "client": context.client_id or ""}
        for key, fields in asked:
            code = results.get(key, whole)
            if code == ErrorCode.NONE:
                audit.info("%s", pairs("changed", **who, api=api.name, **fields))
            else:
                line = pairs("refused", **who, api=api.name, **fields, result=_name(code))
                self._lines.say_pairs(logging.INFO, "audit event=refused", line)
        if more:
            audit.info("%s", pairs("changed", **who, api=api.name, more=more))


async def _answer(work: Response | Awaitable[Response]) -> Response:
    return work if isinstance(work, Response) else await work


async def _first(context: Context, subjects: Iterable[AuditSubject]) -> tuple[list[AuditSubject], int]:
    """The subjects that get a line, and how many more there are."""
    first: list[AuditSubject] = []
    more = 0
    async for subject in context.each(subjects):
        if len(first) < MAX_LINES:
            first.append(subject)
        else:
            more += 1
    return first, more


def _only_checks(request: Any) -> bool:
    return bool(getattr(request, "validate_only", False))


def _joined(texts: Iterable[str]) -> str:
    """The texts as one, as far as a line shows them."""
    shown: list[str] = []
    length = 0
    for text in texts:
        shown.append(text)
        length += len(text) + 1
        if length > MAX_VALUE + 1:
            break
    return ",".join(shown)


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


# -- topics


def _created(request: Any) -> Iterable[AuditSubject]:
    for topic in request.topics:
        partitions = len(topic.assignments) or topic.num_partitions
        configs = _joined(f"{config.name}={config.value}" for config in topic.configs) or None
        yield topic.name, {"topic": topic.name, "partitions": partitions, "configs": configs}


def _deleted(request: Any) -> Iterable[AuditSubject]:
    for name in request.topic_names:
        yield name, {"topic": name}
    for topic in request.topics:
        known = topic.name if topic.name is not None else bytes(topic.topic_id)
        yield known, {"topic": topic.name} if topic.name is not None else {"topic_id": bytes(known).hex()}


def _deletion_results(response: Any) -> AuditResults:
    for row in response.responses:
        yield row.name, row.error_code
        yield bytes(row.topic_id), row.error_code


def _grown(request: Any) -> Iterable[AuditSubject]:
    for topic in request.topics:
        yield topic.name, {"topic": topic.name, "partitions": topic.count}


def _trimmed(request: Any) -> Iterable[AuditSubject]:
    for topic in request.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            yield key, {"partition": f"{topic.name}-{key[1]}", "before": partition.offset}


def _by_partition(topics: Iterable[Any], name: str = "name") -> AuditResults:
    for topic in topics:
        for partition in topic.partitions:
            yield (getattr(topic, name), partition.partition_index), partition.error_code


def _moved(request: Any) -> Iterable[AuditSubject]:
    for topic in request.topics:
        for partition in topic.partitions:
            to = "cancelled" if partition.replicas is None else _joined(map(str, partition.replicas))
            key = (topic.name, partition.partition_index)
            yield key, {"partition": f"{topic.name}-{key[1]}", "replicas": to}


def _elected(request: Any) -> Iterable[AuditSubject]:
    kind = "unclean" if request.election_type else "preferred"
    if request.topic_partitions is None:
        yield None, {"partitions": "all", "election": kind}
    for topic in request.topic_partitions or ():
        for index in topic.partitions:
            yield (topic.topic, index), {"partition": f"{topic.topic}-{index}", "election": kind}


def _election_results(response: Any) -> AuditResults:
    for topic in response.replica_election_results:
        for row in topic.partition_result:
            yield (topic.topic, row.partition_id), row.error_code


def _other_directories(request: Any) -> Iterable[AuditSubject]:
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                yield (topic.name, index), {"partition": f"{topic.name}-{index}", "directory": directory.path}


# -- settings, rules, users, quotas


def _configured(request: Any) -> Iterable[AuditSubject]:
    for resource in request.resources:
        kind = _member(ResourceType, resource.resource_type)
        named = f"{kind}:{resource.resource_name}"
        of_broker = resource.resource_type == ResourceType.BROKER
        values = _joined(_config(config, of_broker) for config in resource.configs)
        yield (resource.resource_type, resource.resource_name), {"resource": named, "configs": values}


def _config(config: Any, of_broker: bool) -> str:
    if len(config.name) > MAX_VALUE:
        return str(config.name)  # the line ends within it
    if config.value is None:
        return f"{config.name}-removed"
    return f"{config.name}=(hidden)" if _is_secret(config.name, of_broker) else f"{config.name}={config.value}"


def _is_secret(name: str, of_broker: bool) -> bool:
    """Whether a setting is secret, with any prefixes of it. A mistyped name may be that of a password."""
    words = name.lower().split(".")
    known = [BROKER_SETTINGS.get(".".join(words[start:])) for start in range(len(words))]
    found = [setting for setting in known if setting is not None]
    return any(setting.sensitive for setting in found) or (of_broker and not found)


def _config_results(response: Any) -> AuditResults:
    return (((row.resource_type, row.resource_name), row.error_code) for row in response.responses)


def _ruled(request: Any) -> Iterable[AuditSubject]:
    for place, rule in enumerate(request.creations):
        yield place, _rule(rule, rule.resource_pattern_type)


def _rule(rule: Any, pattern: int) -> dict[str, object]:
    return {
        "permission": _member(Permission, rule.permission_type),
        "user": rule.principal,
        "operation": _member(Operation, rule.operation),
        "resource": f"{_member(Resource, rule.resource_type)}:{rule.resource_name}",
        "pattern": _member(Pattern, pattern),
        "from": rule.host,
    }


def _in_order(rows: str) -> Callable[[Any], AuditResults]:
    return lambda response: ((place, row.error_code) for place, row in enumerate(getattr(response, rows)))


def _by(name: str, rows: str) -> Callable[[Any], AuditResults]:
    return lambda response: ((getattr(row, name), row.error_code) for row in getattr(response, rows))


def _unruled(request: Any) -> Iterable[AuditSubject]:
    for place, wanted in enumerate(request.filters):
        kind = _member(Resource, wanted.resource_type_filter)
        fields: dict[str, object] = {
            "permission": _member(Permission, wanted.permission_type),
            "user": wanted.principal_filter or "any",
            "operation": _member(Operation, wanted.operation),
            "resource": f"{kind}:{wanted.resource_name_filter or 'any'}",
            "pattern": _member(Pattern, wanted.pattern_type_filter),
        }
        yield place, fields


def _users(request: Any) -> Iterable[AuditSubject]:
    for row in request.upsertions:
        yield row.name, {"user": row.name, "mechanism": MECHANISM_NUMBERS.get(row.mechanism), "password": "set"}
    for row in request.deletions:
        yield (
            row.name,
            {"user": row.name, "mechanism": MECHANISM_NUMBERS.get(row.mechanism), "password": "removed"},
        )


def _quotas(request: Any) -> Iterable[AuditSubject]:
    for place, entry in enumerate(request.entries):
        entity = entity_text(tuple((part.entity_type, part.entity_name) for part in entry.entity))
        values = _joined(f"{op.key}-removed" if op.remove else f"{op.key}={op.value:g}" for op in entry.ops)
        yield place, {"entity": entity, "quotas": values}


# -- the rest


def _offsets(request: Any) -> Iterable[AuditSubject]:
    for topic in request.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            yield key, {"group": request.group_id, "partition": f"{topic.name}-{key[1]}"}


def _features(request: Any) -> Iterable[AuditSubject]:
    for row in request.feature_updates:
        yield row.feature, {"feature": row.feature, "level": row.max_version_level}


def _member(kind: Any, number: int) -> str:
    try:
        return str(kind(number).name).lower()
    except ValueError:
        return str(number)


def _nothing(response: Any) -> AuditResults:
    return ()


CHANGES: dict[int, tuple[Callable[[Any], Iterable[AuditSubject]], Callable[[Any], AuditResults]]] = {
    ApiKey.CREATE_TOPICS: (_created, _by("name", "topics")),
    ApiKey.DELETE_TOPICS: (_deleted, _deletion_results),
    ApiKey.CREATE_PARTITIONS: (_grown, _by("name", "results")),
    ApiKey.DELETE_RECORDS: (_trimmed, lambda response: _by_partition(response.topics)),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (_moved, lambda response: _by_partition(response.responses)),
    ApiKey.ELECT_LEADERS: (_elected, _election_results),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        _other_directories,
        lambda response: _by_partition(response.results, "topic_name"),
    ),
    ApiKey.ALTER_CONFIGS: (_configured, _config_results),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (_configured, _config_results),
    ApiKey.CREATE_ACLS: (_ruled, _in_order("results")),
    ApiKey.DELETE_ACLS: (_unruled, _in_order("filter_results")),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (_users, _by("user", "results")),
    ApiKey.ALTER_CLIENT_QUOTAS: (_quotas, _in_order("entries")),
    ApiKey.DELETE_GROUPS: (
        lambda request: ((name, {"group": name}) for name in request.groups_names),
        _by("group_id", "results"),
    ),
    ApiKey.OFFSET_DELETE: (_offsets, lambda response: _by_partition(response.topics)),
    ApiKey.UPDATE_FEATURES: (_features, _by("feature", "results")),
    ApiKey.UNREGISTER_BROKER: (lambda request: [(None, {"broker": request.broker_id})], _nothing),
}
"""The subjects of a request and their results, by API."""
