"""Drivers: where the graph lives."""
