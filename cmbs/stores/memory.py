"""Sessions in memory. The store is the reference implementation of the SPI, and lives beside it."""

from cmbs.spi.in_memory import InMemoryStore

__all__ = ["InMemoryStore"]
