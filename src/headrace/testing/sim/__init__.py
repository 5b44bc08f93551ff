"""Deterministic simulation: several brokers, their clients, disks and network in one thread under virtual time.

The brokers are the real ones (`node.Node`); only what they reach through `Env` and `Outside` is simulated. One
seed decides everything: delays, clocks, faults and what clients do. A run with the same seed repeats exactly.

    loop, world      virtual time, processes that can be killed and paused, drifting clocks
    disk, network    what a crash takes, what a cut delays
    store, brokers   the coordination store with eyes, machines with brokers
    clients          producers, readers, members of groups, an administrator
    trimmers         topics whose records are deleted, and whose settings change
    checks, ledger   the invariants; what was ever committed
    deletions        why a log may start where it does
    history          what clients were told, and the verdict
    faults, run      the schedule, and one run from start to verdict
    many             many seeds on all cores
"""
