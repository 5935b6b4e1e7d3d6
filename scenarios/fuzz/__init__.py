"""Fuzzers: what must hold is tried with random streams, faults, kills and hostile input."""
