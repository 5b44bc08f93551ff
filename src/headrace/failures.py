"""Why a broker does not run."""

from __future__ import annotations


class StartError(Exception):
    """Something an operator must put right before a broker can start here."""


class BrokerFailed(StartError):
    """A broker that was running and cannot continue."""
