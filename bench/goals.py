"""The goals of the project, as ratios of Headrace to Apache Kafka in the same run.

A goal names a workload, a case and a figure. Costs may be at most the limit, rates must be at least the limit.
A case that the quick form leaves out (10,000 partitions) has no verdict there: a smaller one does not stand for
it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    title: str
    workload: str
    case: str
    figure: str
    limit: float
    at_least: bool = False

    def holds(self, ratio: float) -> bool:
        return ratio >= self.limit if self.at_least else ratio <= self.limit

    @property
    def condition(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}"


GOALS = (
    Goal("CPU per GB produced, 1 MB batches of 1 KB records", "W1", "1KB in 1MB", "cpu_ms_per_gb", 0.7),
    Goal("CPU per GB produced, 1 MB batches of 100 B records", "W1", "100B in 1MB", "cpu_ms_per_gb", 0.5),
    Goal("CPU per GB fetched, 1 MB answers", "F1", "1MB", "cpu_ms_per_gb", 1.0),
    Goal("CPU per GB fetched, 16 KB answers", "F1", "16KB", "cpu_ms_per_gb", 0.55),
    Goal("CPU per fetch of 100 B", "F1", "100B", "cpu_us_per_request", 0.55),
    Goal("Throughput, ProducerPerformance", "W1", "ProducerPerformance 1KB", "mb_per_s", 1.0, True),
    Goal("Throughput, librdkafka producer", "W1", "librdkafka 1KB", "mb_per_s", 1.0, True),
    Goal("Throughput, librdkafka consumer", "F1", "librdkafka consume", "mb_per_s", 1.0, True),
    Goal("Throughput, ConsumerPerformance", "F1", "ConsumerPerformance", "mb_per_s", 1.0, True),
    Goal("Single-record Produce per CPU second, one in flight", "W2", "16x1", "requests_per_cpu_s", 1.8, True),
    Goal("Single-record Produce per CPU second, pipelined", "W2", "4x64 pipelined", "requests_per_cpu_s", 5, True),
    Goal("Round trip at one in flight, p50", "W2", "1x1", "p50_us", 0.75),
    Goal("Round trip at one in flight, p99", "W2", "1x1", "p99_us", 0.75),
    Goal("End to end at 10k msg/s, p99", "W4", "10k/s", "p99_us", 0.5),
    Goal("End to end at 10k msg/s, p99.9", "W4", "10k/s", "p999_us", 0.5),
    Goal("Memory idle", "W10", "idle", "rss_mb", 0.12),
    Goal("Memory loaded", "W10", "loaded", "rss_peak_mb", 0.08),
    Goal("Memory with 10k partitions", "W7", "10000 partitions", "rss_mb", 0.2),
    Goal("Start to first ack, empty", "W9", "empty", "first_ack_s", 0.25),
    Goal("Start to first ack, 10k partitions", "W9", "10000 partitions", "first_ack_s", 0.25),
    Goal("Recovery after kill -9", "W11", "kill -9", "first_ack_s", 0.33),
    Goal("acks=all, three replicas: throughput", "W3", "1KB", "mb_per_s", 1.5, True),
    Goal("acks=all, three replicas: CPU per GB", "W3", "1KB", "cpu_ms_per_gb", 0.5),
    Goal("Gap after kill -9 of a leader", "W12", "kill -9, leader", "gap_s", 0.1),
    Goal("Gap after kill -9 of the controller", "W12", "kill -9, leader and controller", "gap_s", 0.1),
    Goal("Gap after SIGTERM of a leader", "W12", "SIGTERM, leader", "gap_s", 0.3),
    Goal("Transactions of 1 record per CPU second", "W14", "1 record", "requests_per_cpu_s", 1.3, True),
    Goal("Transactions of 100 records per CPU second", "W14", "100 records", "requests_per_cpu_s", 1.3, True),
    Goal("One machine, workers on all cores: produce", "W22", "produce 1KB", "mb_per_s", 1.3, True),
    Goal("One machine, workers on all cores: consume", "W22", "consume 1KB", "mb_per_s", 1.1, True),  # ADR 0020
    Goal("One machine, workers on all cores: both", "W22", "produce and consume 1KB", "mb_per_s", 1.3, True),
    Goal("New controller after kill -9", "W19", "kill -9, controller", "controller_s", 1.0),
    Goal("Failover of 3,000 partitions", "W19", "kill -9, leader of 3,000", "led_again_s", 0.2),
    Goal("Topic of 1,000 partitions, three replicas", "W19", "1,000 partitions created", "seconds", 1.0),
    Goal("Idle CPU of three brokers", "W19", "idle, 3 partitions", "idle_cpu_percent", 1.0),
    Goal("A returning follower: MB/s", "W20", "catch up", "mb_per_s", 1.0, True),
    Goal("A returning follower: CPU per GB", "W20", "catch up", "cpu_ms_per_gb", 0.5),
    Goal("fsync per batch, 64 connections, one partition", "W16", "1 partitions", "requests_per_s", 3, True),
    Goal("TLS: CPU per GB produced", "W23", "produce, TLS", "cpu_ms_per_gb", 1.0),
    Goal("TLS: CPU per GB consumed", "W23", "consume, TLS", "cpu_ms_per_gb", 1.0),
    Goal("fsync per batch, 64 connections, eight partitions", "W16", "8 partitions", "requests_per_s", 3, True),
)
