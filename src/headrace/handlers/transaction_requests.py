"""What the quick handlers of transactional requests share: a decision now, and an answer once it is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from headrace.model.errors import ErrorCode
from headrace.services.reply import NOT_QUICK, Pending, QuickReply
from headrace.services.transactions.shard import DecisionTold
from headrace.transactions.decision import TransactionDecision

DecisionAnswer = Callable[[TransactionDecision, ErrorCode], bytes]
"""What was decided, and whether it could be stored."""


def quick_answer(
    decide: Callable[[DecisionTold], TransactionDecision | None], answer_of: DecisionAnswer
) -> QuickReply:
    pending = Pending()
    decision = decide(lambda decided, stored: pending.complete_with(answer_of, decided, stored))
    if decision is None:
        return NOT_QUICK
    if decision.changed is None:
        return answer_of(decision, ErrorCode.NONE)
    return cast(bytes, pending.result()) if pending.done else pending
