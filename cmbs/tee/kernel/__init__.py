"""The lattice, the merge rules and the graph of Tee. Pure: no clock, no randomness, no I/O, no framework."""
