"""The rules of belief sessions. Pure: no clock, no randomness, no I/O, no framework."""
