"""The authorisation table: every API has exactly one row, and one without is refused to everybody.

Where the right is one on the cluster and the response has a place for an error, the registration alone is the
row. Produce and Fetch are cut down while they run (`hot`). A test holds that no API is without.
"""

from __future__ import annotations

from headrace.handlers.registry import Api
from headrace.security.acl import Resource
from headrace.server.authorization.asking import NOT_ON_CLUSTER, Asking, Rule, Ruling, refusal
from headrace.server.authorization.cluster_rules import CLUSTER_RULES
from headrace.server.authorization.group_rules import GROUP_RULES
from headrace.server.authorization.topic_rules import TOPIC_RULES
from headrace.server.authorization.transaction_rules import TRANSACTION_RULES
from headrace.wire.api_keys import ApiKey
from headrace.wire.schema import Request

RULES: dict[int, Rule] = {**TOPIC_RULES, **GROUP_RULES, **TRANSACTION_RULES, **CLUSTER_RULES}
HOT = frozenset((ApiKey.PRODUCE, ApiKey.FETCH))
OPEN = frozenset((ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))
"""Allowed before the login, when a client has no identity yet."""


def rule_of(api: Api) -> Rule | None:
    """The API's row; None if it has none."""
    if api.key in OPEN:
        return _everybody
    if api.key in RULES:
        return RULES[api.key]
    right = api.authorize
    if right is None or right.resource != Resource.CLUSTER or api.response is None:
        return None
    if not all(api.response.has_field("error_code", version) for version in api.versions):
        return None
    operation = right.operation

    def on_cluster(asking: Asking, request: Request) -> Ruling:
        asking.require_cluster(operation)
        return None

    return on_cluster


def _everybody(asking: Asking, request: Request) -> Ruling:
    return None


def refused_to_all(asking: Asking, request: Request) -> Ruling:
    raise refusal(NOT_ON_CLUSTER)
