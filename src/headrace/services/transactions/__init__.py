"""Durable shells around the transactions, and what partitions ask of their coordinators."""
