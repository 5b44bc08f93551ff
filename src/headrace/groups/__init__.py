"""Consumer groups: the pure state machines of both protocols, and their offsets. Start at `coordinator`."""
