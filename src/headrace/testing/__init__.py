"""A real broker inside a test: its own process, a free port, temporary data, gone when the test is.

    from headrace.testing import Broker

    with Broker() as broker:                            # or: async with Broker() as broker
        broker.create_topic("orders", partitions=3)
        Producer({"bootstrap.servers": broker.bootstrap_servers})

    Broker(users={"alice": "secret"}, tls=True)         # broker.client_settings("alice")
    BrokerCluster()                                     # three brokers
    AsyncBroker()                                       # with coroutines

In pytest the fixtures `headrace_broker`, `headrace_async_broker`, `headrace_cluster`, `headrace_topic` and
`headrace_broker_factory` are there once headrace is installed (`headrace.testing.pytest_plugin`). Importing this
imports neither the broker's code nor pytest. The other modules here are for Headrace's own tests and may change.
"""

from headrace.testing.broker import Broker
from headrace.testing.from_a_loop import AsyncBroker
from headrace.testing.process import ServerFailed
from headrace.testing.several import BrokerCluster

__all__ = ["AsyncBroker", "Broker", "BrokerCluster", "ServerFailed"]
