"""Validation of proposals: stages, capabilities, authority and conflicts."""
