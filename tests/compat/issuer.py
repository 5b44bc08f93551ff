"""Who issues tokens for OAUTHBEARER: an issuer with a key of its own, whose public half is in a JWKS file, and a
server of it."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote_plus

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

ISSUER, AUDIENCE = "https://issuer.test", "headrace"


class Issuer:
    def __init__(self, folder: Path) -> None:
        self.jwks = folder / "jwks.json"
        self.exchange_keys("first")

    def exchange_keys(self, key_id: str) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._key_id = key_id
        public = json.loads(jwt.get_algorithm_by_name("RS256").to_jwk(self._key.public_key()))
        text = json.dumps({"keys": [{**public, "kid": key_id, "use": "sig", "alg": "RS256"}]})
        replacement = self.jwks.with_suffix(".new")
        replacement.write_text(text)
        replacement.replace(self.jwks)

    def token(self, user: str = "alice", seconds: float = 600.0, **claims: Any) -> str:
        now = time.time()
        given = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": int(now), "exp": int(now + seconds), **claims}
        return jwt.encode(given, self._key, "RS256", {"kid": self._key_id})


CLIENT, SECRET = "billing app", "s/cret +1"
"""Signs that a form must encode."""


class IssuerServer(ThreadingHTTPServer):
    """Its endpoints over HTTP, or HTTPS with a context: `/keys`, and `/token` for a client by its id and secret.

    `delay` keeps answers back, as a server that hangs does, until it is set or the server is closed.
    """

    daemon_threads = True

    def __init__(self, issuer: Issuer, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Answers)
        self.issuer = issuer
        self.requests: list[str] = []
        self.scopes: list[str | None] = []
        self.seconds = 600.0
        """For how long its tokens are valid."""
        self.expires_in: object = 600
        """What it says about that."""
        self.go = threading.Event()
        self.go.set()
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self._scheme = "http" if tls is None else "https"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def url(self, path: str) -> str:
        return f"{self._scheme}://127.0.0.1:{self.server_port}/{path}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A peer that gives up is none of ours."""

    def close(self) -> None:
        self.go.set()
        self.shutdown()
        self.server_close()


class _Answers(BaseHTTPRequestHandler):
    server: IssuerServer

    def do_GET(self) -> None:
        self._begin()
        if self.path == "/keys":
            self._say(200, self.server.issuer.jwks.read_bytes())
        else:
            self._say(404, b"{}")

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self._begin()
        given = base64.b64decode((self.headers["Authorization"] or "").removeprefix("Basic ")).decode()
        known = (f"{CLIENT}:{SECRET}", f"{quote_plus(CLIENT)}:{quote_plus(SECRET)}")
        if self.path != "/token" or form.get("grant_type") != ["client_credentials"]:
            self._say(400, b'{"error": "invalid_request"}')
        elif given not in known:
            self._say(401, b'{"error": "invalid_client"}')
        else:
            self.server.scopes.append(form.get("scope", [None])[0])
            token = self.server.issuer.token(seconds=self.server.seconds)
            answer = {"access_token": token, "token_type": "Bearer", "expires_in": self.server.expires_in}
            self._say(200, json.dumps(answer).encode())

    def _begin(self) -> None:
        self.server.requests.append(self.path)
        self.server.go.wait()

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""
