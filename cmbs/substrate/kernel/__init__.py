"""The rules of spaces. Pure: no clock, no randomness, no I/O, no framework."""
