"""`client:` of a connector's file: what is wrong with it is said before anything is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.client.connection import ClientSettings
from headrace.connect.definition import load
from headrace.connect.login import with_client
from headrace.connect.options import ConfigProblems

LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "etl",
    "sasl.password": "secret",
}


def client_of(client: dict[str, str], beside: Path | None = None) -> dict[str, str]:
    given = {"connector": "files-source", "client": client, "config": {"directory": "in", "topic": "rows"}}
    return dict(load(given, "rows", beside).client)


def test_a_login_holds_and_nothing_changes_without_one() -> None:
    login = with_client(ClientSettings(), client_of(LOGIN)).login
    assert login is not None
    assert (login.user, login.mechanism) == ("etl", "SCRAM-SHA-256")
    assert with_client(ClientSettings(), client_of({})) == ClientSettings()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"security.protcol": "SSL"}, "did you mean security.protocol?"),
        ({"acks": "1"}, "client has no setting acks: it takes security.protocol, sasl.* and ssl.*"),
        ({**LOGIN, "sasl.mechanism": "GSSAPI"}, "client: sasl.mechanism is one of"),
        ({**LOGIN, "sasl.username": ""}, "client: sasl.username and sasl.password are missing"),
        ({"security.protocol": "SSL", "ssl.ca.location": "none.pem"}, "/nowhere/none.pem"),
    ],
)
def test_mistakes_are_told(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigProblems) as problems:
        client_of(given, Path("/nowhere"))
    assert said in str(problems.value)
