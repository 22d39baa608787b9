"""Signed notes, checkpoints, records of stream heads and the tree over them. Pure."""
