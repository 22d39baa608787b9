"""Gated calls: the state machine under every surface on which agents call tools, and what a model reads of a call."""
