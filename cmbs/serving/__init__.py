"""The parts of a belief server: the door, the sessions at hand, and the way to the log."""
