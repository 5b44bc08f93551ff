"""A small asyncio client over `headrace.wire`: for the command line, replication, drones and the console.

    async with Cluster(real_env(), parse_bootstrap("127.0.0.1:9092")) as cluster:
        view = await cluster.metadata()

It is no general-purpose library (architecture D1): no consumer groups, no background threads, no caches beyond the
last metadata. It works against any broker that speaks Kafka's protocol.
"""
