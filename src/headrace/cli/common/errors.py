"""The message when a cluster refuses something or cannot be reached: what, where, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.cli.common.failure import DENIED, FAILED, NOT_FOUND, TIMED_OUT, UNREACHABLE, CommandError
from headrace.cli.common.rights import REFUSED, rights_advice
from headrace.client.errors import CannotReach, ClientError, ConnectionLost, NoneReachable, Reason, RequestTimedOut
from headrace.model.errors import ErrorCode, KafkaError

_EXIT_CODES: dict[ErrorCode, int] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_ID: NOT_FOUND,
    ErrorCode.RESOURCE_NOT_FOUND: NOT_FOUND,
    ErrorCode.GROUP_ID_NOT_FOUND: NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: NOT_FOUND,
    ErrorCode.BROKER_NOT_AVAILABLE: NOT_FOUND,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: DENIED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: DENIED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: DENIED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: DENIED,
    ErrorCode.SASL_AUTHENTICATION_FAILED: DENIED,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: DENIED,
    ErrorCode.REQUEST_TIMED_OUT: TIMED_OUT,
}

_ADVICE: dict[ErrorCode, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`headrace topic list` shows which topics there are.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "Add --if-not-exists if that is expected, or choose another name.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "`headrace cluster info` shows how many brokers there are.",
    ErrorCode.INVALID_PARTITIONS: "`headrace topic describe` shows how many partitions there are.",
    ErrorCode.INVALID_CONFIG: "`headrace topic describe --all TOPIC` lists the settings.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "`headrace cluster health` shows which replicas are missing.",
    ErrorCode.LEADER_NOT_AVAILABLE: "`headrace cluster health` shows which partitions have no leader.",
    ErrorCode.NOT_CONTROLLER: "The cluster elects a controller when its brokers are up; try again in a moment.",
    ErrorCode.MESSAGE_TOO_LARGE: "Raise the topic's max.message.bytes, or send smaller records.",
    ErrorCode.NON_EMPTY_GROUP: "Stop its members first; `headrace group describe --members` shows them.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Its members still read that topic: stop them first.",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "`headrace txn list` shows the transactional ids.",
    ErrorCode.INVALID_TXN_STATE: "`headrace txn describe` shows its state.",
    ErrorCode.KAFKA_STORAGE_ERROR: "`headrace cluster health` shows which disks are full or have failed.",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "Set sasl.mechanism in the file of --client-config to one that the "
    "broker offers, and use a user who has a password for it.",
    ErrorCode.UNSUPPORTED_VERSION: "The broker is too old or too new for this command.",
}

_LOST = (
    "The broker may have stopped: try again. If this happens every time, the listener may need a login: set "
    "security.protocol and sasl.* with --client-config."
)
_START_ONE = "Start one with `headrace start`, or give another address with --bootstrap-server HOST:PORT."
_REASON_ADVICE: dict[Reason, str] = {
    Reason.REFUSED: f"Is the broker running? {_START_ONE}",
    Reason.UNKNOWN_HOST: "Check the spelling of the host, and that this machine can resolve it.",
    Reason.SILENT: "Check the address and any firewall in between.",
    Reason.NO_ROUTE: "Check the address and the network.",
    Reason.CLOSED: "Check that the port is a Kafka listener, and whether it wants TLS or a login.",
    Reason.HTTP: "Brokers usually listen on 9092; 8080, 8081 and 9644 are for browsers and tools.",
    Reason.TLS: "Set security.protocol=SSL or SASL_SSL with --client-config, or use a listener without TLS.",
    Reason.NO_TLS: "Use the port of a TLS listener (often 9093), or leave security.protocol out.",
    Reason.UNTRUSTED: "Name the CA that signed it: ssl.ca.location, with --client-config.",
    Reason.TLS_REFUSED: "Check the TLS versions, and whether the broker asks for a client certificate.",
    Reason.TLS_CLOSED: "That port may not speak TLS: use the port of a TLS listener (often 9093), or leave "
    "security.protocol out.",
    Reason.NOT_KAFKA: "Check the port; brokers usually listen on 9092.",
}


def sentence(text: str) -> str:
    """The text with a capital letter, unless it begins with a name such as orders-0, and with a full stop."""
    text = text.strip()
    first_word = text.split(maxsplit=1)[0] if text else ""
    begun = text[:1].upper() + text[1:] if first_word.rstrip(",:;").replace("'", "").isalpha() else text
    return begun + ("" if text.endswith((".", "!", "?")) else ".")


def explain_kafka(error: KafkaError, subject: str = "") -> CommandError:
    """`subject` is what the user asked for, such as "topic orders"."""
    text = error.message or REFUSED.get(error.code) or error.code.name.replace("_", " ").lower()
    if error.code in REFUSED and text.startswith("topic ") and text.count(" ") == 1:  # only what was refused
        text = f"{text}: {REFUSED[error.code]}"
    name = error.code.name
    message = sentence(f"{subject}: {text}" if subject and subject not in text else text)
    if name not in message:
        message = f"{message} ({name})" if message.endswith("?") else f"{message[:-1]} ({name})."
    advice = rights_advice(error.code) or _ADVICE.get(error.code)
    return CommandError(message, _EXIT_CODES.get(error.code, FAILED), advice)


def explain(error: KafkaError | ClientError) -> CommandError:
    return explain_kafka(error) if isinstance(error, KafkaError) else explain_client(error)


def explain_client(error: ClientError) -> CommandError:
    if isinstance(error, NoneReachable):
        return _explain_bootstrap(error)
    if isinstance(error, CannotReach):
        return _explain_unreachable(error)
    if isinstance(error, RequestTimedOut):
        return CommandError(
            sentence(str(error)), TIMED_OUT, "`headrace cluster health` may show why; --timeout waits longer."
        )
    assert isinstance(error, ConnectionLost)
    return CommandError(sentence(str(error)), UNREACHABLE, _LOST)


def _explain_bootstrap(error: NoneReachable) -> CommandError:
    first = error.failures[0]
    if len(error.failures) == 1:
        message = f"Cannot reach a broker at {first}."
    else:
        message = "Cannot reach any of the brokers:" + "".join(f"\n  {failure}" for failure in error.failures)
    return CommandError(message, UNREACHABLE, _REASON_ADVICE.get(first.reason))


def _explain_unreachable(error: CannotReach) -> CommandError:
    """The bootstrap server answered, and named an address that does not work: the usual listener mistake."""
    if error.broker_id is None:
        return _explain_bootstrap(NoneReachable([error]))
    return CommandError(
        f"Broker {error.broker_id} advertises an address that cannot be used: {error}.",
        UNREACHABLE,
        f"Clients must reach the address in advertised.listeners of broker {error.broker_id}; "
        "`headrace doctor` checks them all.",
    )


def missing_topic(name: str, known: list[str]) -> CommandError:
    near = nearest(name, known)
    advice = (
        f"Did you mean {near}?"
        if near is not None
        else f"`headrace topic list` shows the topics; `headrace topic create {name}` creates it."
    )
    return CommandError(f"There is no topic {name}.", NOT_FOUND, advice)


def nearest(name: str, known: Sequence[str]) -> str | None:
    """The name that was probably meant. A cutoff of 0.6 took a topic `nope` for `copied`."""
    import difflib  # only needed for a mistake

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.65)
    return near[0] if near else None
