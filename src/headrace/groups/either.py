"""A group of either protocol."""

from __future__ import annotations

from headrace.groups.classic import ClassicGroup
from headrace.groups.consumer import ConsumerGroup

Group = ClassicGroup | ConsumerGroup
