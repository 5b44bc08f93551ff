"""Headrace beside Apache Kafka: the same work, the same clients, the same machine, in turn."""
