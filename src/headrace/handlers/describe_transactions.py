"""DescribeTransactions (65), v0. The state of transactions by transactional id (KIP-664).

There are no transactions yet: no id is found.
"""

from __future__ import annotations

from headrace.handlers.context import Context, transactional_id_describe
from headrace.handlers.registry import api
from headrace.model.errors import ErrorCode
from headrace.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


@api(
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    versions=range(1),
    authorize=transactional_id_describe,
)
def describe_transactions(ctx: Context, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    """Tells the state of transactions by transactional id: none yet."""
    return DescribeTransactionsResponse(
        transaction_states=[_describe(transactional_id) for transactional_id in request.transactional_ids]
    )


def _describe(transactional_id: str) -> TransactionState:
    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
    return TransactionState(transactional_id=transactional_id, error_code=code)
