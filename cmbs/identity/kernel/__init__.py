"""The rules of the key stream. Pure: no clock, no randomness, no I/O, no framework."""
