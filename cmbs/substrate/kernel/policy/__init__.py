"""Policies: constraints, predicates, references and schemas."""
