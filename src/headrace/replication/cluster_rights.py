"""What brokers ask of each other needs the right `cluster-action`: without it, the log says how to get it."""

from __future__ import annotations

from headrace.model.errors import ErrorCode, KafkaError

ADVICE = (
    "Access rules do not allow this broker's user to act for the cluster. Run `headrace acl add -u USER --cluster "
    "-o cluster-action`, or name the user in super.users of all brokers."
)


def with_advice(error: Exception) -> str:
    """The error, and what to do if it can be ended by an access rule."""
    if isinstance(error, KafkaError) and error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return f"{error}. {ADVICE}"
    return str(error)
