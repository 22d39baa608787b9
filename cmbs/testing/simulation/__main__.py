"""`python -m cmbs.testing.simulation`: run any number of seeds, or one with its trace."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from cmbs.testing.simulation.run import Shape, SimulationFailed, shape_of, simulate


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; 1 where a run failed."""
    parser = argparse.ArgumentParser(prog="python -m cmbs.testing.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000, metavar="N", help="how many seeds to run")
    parser.add_argument("--from", type=int, default=0, metavar="N", dest="first", help="the first of them")
    parser.add_argument("--seed", type=int, metavar="N", help="run this one and print what happens")
    parser.add_argument(
        "--shape", choices=list(Shape), type=Shape, help="where tombstones are; taking turns if not given"
    )
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _trace(options.seed, options.shape or shape_of(options.seed))
    counts: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.seeds):
        try:
            counts += simulate(seed, options.shape).counts
        except SimulationFailed as exc:
            print(exc, file=sys.stderr)
            return 1
    print(f"{options.seeds} seeds good: " + ", ".join(f"{number:,} {what}" for what, number in sorted(counts.items())))
    return 0


def _trace(seed: int, shape: Shape) -> int:
    trace: list[str] = []
    try:
        simulate(seed, shape, trace=trace)
    except SimulationFailed as exc:
        failure: SimulationFailed | None = exc
    else:
        failure = None
    print(f"seed {seed}, {shape}:", *trace, sep="\n")
    print("good" if failure is None else failure)
    return 0 if failure is None else 1


if __name__ == "__main__":
    sys.exit(main())
