"""ListTransactions (66), v0-2. The transactions that this broker coordinates (KIP-664), those that match all
filters.

v1 by how long they have run (KIP-994); v2 by a pattern of transactional ids (KIP-1152). Unknown names of states
are returned; a pattern that is not a regular expression is refused. An id without a transaction counts as one that
has run forever, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.groups.regex import matching_names
from headrace.handlers.context import Context, transactional_id_describe
from headrace.handlers.registry import api
from headrace.model.errors import KafkaError
from headrace.transactions.states import BY_TITLE
from headrace.transactions.transaction import Transaction
from headrace.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


@api(ListTransactionsRequest, ListTransactionsResponse, versions=range(3), authorize=transactional_id_describe)
def list_transactions(ctx: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """Lists the transactions that this broker coordinates."""
    try:
        found = _matching(request, list(ctx.broker.transactions.transactions()), ctx.broker.env.clock.wall_ms())
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
    return ListTransactionsResponse(
        unknown_state_filters=[state for state in request.state_filters if state not in BY_TITLE],
        transaction_states=[
            TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.title,
            )
            for transaction in found
        ],
    )


def _matching(request: ListTransactionsRequest, every: list[Transaction], now_ms: int) -> list[Transaction]:
    found: Iterable[Transaction] = every
    if request.state_filters:
        states = {BY_TITLE[state] for state in request.state_filters if state in BY_TITLE}
        found = [transaction for transaction in found if transaction.state in states]
    if request.producer_id_filters:
        producer_ids = set(request.producer_id_filters)
        found = [transaction for transaction in found if transaction.producer_id in producer_ids]
    if request.duration_filter >= 0:
        began_before = now_ms - request.duration_filter
        found = [transaction for transaction in found if transaction.start_ms < began_before]
    found = list(found)
    if request.transactional_id_pattern:
        names = matching_names(request.transactional_id_pattern, [found_.transactional_id for found_ in found])
        matching = set(names)
        found = [transaction for transaction in found if transaction.transactional_id in matching]
    return found
