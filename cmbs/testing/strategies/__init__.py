"""Hypothesis strategies, one module a plane."""
