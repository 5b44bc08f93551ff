"""`headrace tls`: certificates."""

from __future__ import annotations

from headrace.cli.common.lazy import group

tls = group(
    "tls",
    "Certificates for trying out TLS: dev.",
    {"dev": ("headrace.cli.tls.dev:dev", "Create your own CA and certificates signed by it.")},
)
