"""`headrace tls`: certificates."""

from __future__ import annotations

from headrace.cli.common.lazy import group

tls = group(
    "tls",
    "Certificates to try TLS with: dev.",
    {"dev": ("headrace.cli.tls.dev:dev", "Make an authority of your own and certificates of it.")},
)
