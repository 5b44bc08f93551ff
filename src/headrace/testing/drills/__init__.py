"""Drills: real brokers under load, real faults, and a checker that must find four zeros (R-REP-8)."""
