"""The durable shell of consumer groups: the pure coordinators of `headrace.groups` on partitions of a topic."""
