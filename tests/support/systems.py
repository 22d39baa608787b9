"""Systems that break, of any shape: circles, faults without alerts in common, and faults with all of them."""

from __future__ import annotations

from hypothesis import strategies as st

from cmbs.adapters.sre import Alert, Component, KnownFault, System

COMPONENTS = tuple(Component(f"c{number}", f"component {number}", "SERVICE") for number in range(6))
ALERTS = tuple(Alert(name, component.id) for name in ("Slow", "Failing") for component in COMPONENTS[:4])

_pairs = st.tuples(st.sampled_from(COMPONENTS), st.sampled_from(COMPONENTS)).filter(lambda pair: pair[0] != pair[1])


@st.composite
def _faults(draw: st.DrawFn, number: int) -> KnownFault:
    return KnownFault(
        fault_id=f"f{number}",
        label=f"fault {number}",
        mechanism_id=f"fault/f{number}",
        provenance=f"hand:{draw(st.sampled_from('ab'))}",
        root_causes=draw(st.frozensets(st.sampled_from(COMPONENTS), max_size=2)),
        components=frozenset(COMPONENTS),
        alerts=draw(st.frozensets(st.sampled_from(ALERTS), min_size=1)),
        propagations=draw(st.frozensets(_pairs, max_size=6)),
    )


@st.composite
def systems(draw: st.DrawFn) -> System:
    """A system with one to six known faults."""
    faults = tuple(draw(_faults(number)) for number in range(draw(st.integers(1, 6))))
    return System("system", "A system", "drawn", faults)
