"""ITBench: from the benchmark's scenario folders to a system of known faults, with a summary of what was of no use."""

from cmbs.adapters.itbench.folders import Benchmark, read_benchmark
from cmbs.adapters.itbench.scenarios import Effect, Note, Reason

__all__ = ["Benchmark", "Effect", "Note", "Reason", "read_benchmark"]
