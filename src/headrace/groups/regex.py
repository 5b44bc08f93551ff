"""The only user of `google-re2`: patterns from the network are matched in linear time, never with `re`.

A subscription must match the whole topic name, as Kafka's does (re2j `matches`). The library is loaded with the
first pattern, so a broker whose groups use none starts without it.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.model.errors import ErrorCode, KafkaError

MAX_PATTERN_LENGTH = 4096
_MAX_PROGRAM_BYTES = 1 << 20


def matching_names(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that match; INVALID_REGULAR_EXPRESSION if the pattern is none."""
    import re2

    if len(pattern) > MAX_PATTERN_LENGTH:
        raise _invalid(f"the pattern is longer than {MAX_PATTERN_LENGTH} characters")
    options = re2.Options()
    options.max_mem = _MAX_PROGRAM_BYTES
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except UnicodeEncodeError as error:
        raise _not_valid(pattern, str(error)) from None
    except re2.error as error:
        raise _not_valid(pattern, error.args[0].decode(errors="replace")) from None
    return frozenset(name for name in names if compiled.fullmatch(name))


def _not_valid(pattern: str, why: str) -> KafkaError:
    return _invalid(f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {why}.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)
