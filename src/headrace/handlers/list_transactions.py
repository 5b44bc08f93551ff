"""ListTransactions (66), v0-2. The transactions that this broker coordinates (KIP-664): none yet.

v1 by how long they have run (KIP-994); v2 by a pattern of transactional ids (KIP-1152). Names of states that do
not exist are told back; a pattern that is not a regular expression is refused.
"""

from __future__ import annotations

from headrace.groups.regex import matching_names
from headrace.handlers.context import Context, transactional_id_describe
from headrace.handlers.registry import api
from headrace.model.errors import KafkaError
from headrace.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

STATES = frozenset(
    (
        *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
        *("Dead", "PrepareEpochFence"),
    )
)


@api(ListTransactionsRequest, ListTransactionsResponse, versions=range(3), authorize=transactional_id_describe)
def list_transactions(ctx: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """Lists the transactions that this broker coordinates: none yet."""
    if request.transactional_id_pattern:
        try:
            matching_names(request.transactional_id_pattern, ())
        except KafkaError as error:
            return ListTransactionsResponse(error_code=error.code)
    return ListTransactionsResponse(
        unknown_state_filters=[state for state in request.state_filters if state not in STATES]
    )
