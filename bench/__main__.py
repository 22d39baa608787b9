"""`python -m bench [names…] [--quick] [--markdown]`: run the benchmarks; exit code 1 where a bar is missed."""

from __future__ import annotations

import argparse
import sys

from bench import (
    console,
    decisions,
    eliminate_scaling,
    first_use,
    followers,
    http_eliminate,
    http_observe,
    kit_tables,
    mcp,
    memory_per_id,
    next_probes,
    parked,
    policy_swap,
    postgres_appends,
    postgres_hot_session,
    proofs,
    server_checkpoints,
    session_lists,
    settled_spaces,
    space_gates,
    space_past,
    space_proposals,
    sqlite_group_commit,
    start_up,
    state_digests,
    tee_eliminate,
    tee_growth,
    tee_live_view,
    tee_neo4j,
    tee_tombstones,
    verify_replay,
)
from bench.harness import FULL, QUICK, Benchmark, Result, describe_machine, shown

BENCHMARKS = [
    Benchmark(eliminate_scaling.NAME, "ELIMINATE in process, by size of the universe", eliminate_scaling.run),
    Benchmark(memory_per_id.NAME, "RSS, DECLARE and snapshot of a large session", memory_per_id.run),
    Benchmark(space_proposals.NAME, "proposals, validated and committed", space_proposals.run),
    Benchmark(space_past.NAME, "the state of a long space as it was", space_past.run),
    Benchmark(settled_spaces.NAME, "a space with a million settled proposals", settled_spaces.run),
    Benchmark(space_gates.NAME, "readings of a session, plain and independent", space_gates.run),
    Benchmark(parked.NAME, "an event on a session that ten thousand proposals wait for", parked.run),
    Benchmark(policy_swap.NAME, "other spaces while a large policy is put in force", policy_swap.run),
    Benchmark(sqlite_group_commit.NAME, "durable appends, together and alone", sqlite_group_commit.run),
    Benchmark(server_checkpoints.NAME, "durable appends with signed checkpoints, and without", server_checkpoints.run),
    Benchmark(postgres_appends.NAME, "durable appends on PostgreSQL to many sessions", postgres_appends.run),
    Benchmark(postgres_hot_session.NAME, "one session, eight processes, PostgreSQL", postgres_hot_session.run),
    Benchmark(session_lists.NAME, "a page of a hundred thousand sessions", session_lists.run),
    Benchmark(start_up.NAME, "the first answer, by number of stored sessions", start_up.run),
    Benchmark(proofs.NAME, "proofs of a large session, made and checked", proofs.run),
    Benchmark(kit_tables.NAME, "kits from tables of a million cells", kit_tables.run),
    Benchmark(next_probes.NAME, "what is worth asking next of a large kit, beside numpy", next_probes.run),
    Benchmark(first_use.NAME, "the first use of a long session, by checkpoint and by replay", first_use.run),
    Benchmark(state_digests.NAME, "what digests of the state in the chain cost", state_digests.run),
    Benchmark(http_eliminate.NAME, "ELIMINATE over HTTP, durable, beside FastAPI with a dict", http_eliminate.run),
    Benchmark(mcp.NAME, "reads and gated calls over MCP, and many agents", mcp.run),
    Benchmark(followers.NAME, "writes to a session that a thousand follow", followers.run),
    Benchmark(http_observe.NAME, "an observation over HTTP, beside an ELIMINATE of the same ids", http_observe.run),
    Benchmark(verify_replay.NAME, "verification and replay of small sessions", verify_replay.run),
    Benchmark(console.NAME, "the console in Chromium: slider, a long session, an hour of events", console.run),
    Benchmark(decisions.NAME, "a decision of the substrate, beside its peers", decisions.run),
    Benchmark(tee_live_view.NAME, "what an incident has not ruled out of a large graph", tee_live_view.run),
    Benchmark(tee_eliminate.NAME, "ELIMINATE with tombstones in Tee, by size of the graph", tee_eliminate.run),
    Benchmark(tee_tombstones.NAME, "ten thousand tombstones at once", tee_tombstones.run),
    Benchmark(tee_growth.NAME, "declaring, viewing and explaining while the graph grows", tee_growth.run),
    Benchmark(tee_growth.NEO4J_NAME, "the same and views in Neo4j, where there is one", tee_growth.run_on_neo4j),
    Benchmark(tee_neo4j.NAME, "the same two in Neo4j, where there is one", tee_neo4j.run),
]


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for and print it; 1 where a bar is missed, else 0."""
    options = _parser().parse_args(arguments)
    names = [benchmark.name for benchmark in BENCHMARKS]
    unknown = sorted(set(options.names).difference(names))
    if unknown:
        print(f"no benchmark `{unknown[0]}`; there are {', '.join(names)}", file=sys.stderr)
        return 2
    print(describe_machine(), file=sys.stderr)
    results: list[Result] = []
    for benchmark in BENCHMARKS:
        if options.names and benchmark.name not in options.names:
            continue
        print(f"{benchmark.name}: {benchmark.about}", file=sys.stderr, flush=True)
        found = benchmark.run(QUICK if options.quick else FULL)
        if not options.markdown:
            print("\n".join(_lines(found)), flush=True)
        results += found
    if options.markdown:
        print("\n".join(_markdown(results)))
    return 0 if all(result.passed for result in results) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description="Measure cmbs against its bars and its baselines.")
    parser.add_argument("names", nargs="*", help="benchmarks to run; all of them by default")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: for a look, not for a verdict")
    parser.add_argument("--markdown", action="store_true", help="print the results as a Markdown table")
    return parser


def _lines(results: list[Result]) -> list[str]:
    lines = []
    for result in results:
        lines.append(f"  {_verdict(result):4}  {result.measured}")
        lines.append(f"        against {result.baseline}")
        lines.append(f"        {shown(result.value)} {result.bar.unit}, bar {result.bar}")
    return lines


def _markdown(results: list[Result]) -> list[str]:
    table = [["benchmark", "measured", "against", "value", "bar", ""], ["---"] * 6]
    for each in results:
        value = f"{shown(each.value)} {each.bar.unit}"
        table.append([f"`{each.benchmark}`", each.measured, each.baseline, value, str(each.bar), _verdict(each)])
    return [f"| {' | '.join(row)} |" for row in table]


def _verdict(result: Result) -> str:
    return "pass" if result.passed else "MISS"


if __name__ == "__main__":
    sys.exit(main())
