"""Listeners with TLS: contexts that can be exchanged, handshakes within limits, a link under the exchange."""
