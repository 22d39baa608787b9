"""Agent frameworks: every tool call of an agent is a proposal first. A thin module for each framework over one gate.

Each module needs the extra of its name, and nothing is imported from here.
"""
