"""About how many bytes of memory a session takes, so that a cache of sessions can be bounded. Pure.

The figures are those of 64-bit CPython, measured; `tests/unit/streams/test_cache_bytes.py` holds them to what
tracemalloc counts.
"""

from __future__ import annotations

from cmbs.belief.kernel.session import Session

_BYTES_PER_SESSION = 2_000
# Beside its characters: the string, its place in the universe and the index, its bit.
_BYTES_PER_HYPOTHESIS = 128
_BYTES_PER_EVENT = 250
_BYTES_PER_OBSERVATION = 260
# Beside the observation: the probe, the hash of the response, its place among the looks.
_BYTES_PER_LOOK = 420
_BYTES_PER_LISTED_ID = 58
_BYTES_PER_OBLIGATION = 400
# A number of 1024 bits and its place in a dictionary.
_BYTES_PER_BLOCK_OF_SPEAKERS = 300
_BYTES_PER_ATTRIBUTED_HYPOTHESIS = 160
_BYTES_PER_AGENT = 90


def weigh(session: Session) -> int:
    """The estimate. It goes through the observations, not through the ids that they list."""
    universe = session.universe
    listed = sum(len(record.applied) + len(record.ignored) for _, record in session.observations)
    return (
        _BYTES_PER_SESSION
        + len(universe) * _BYTES_PER_HYPOTHESIS
        + universe.text_bytes
        + len(session.events) * _BYTES_PER_EVENT
        + len(session.tree.blocks)
        + len(session.tree.tail)
        + len(session.observations) * _BYTES_PER_OBSERVATION
        + len(session.looks) * _BYTES_PER_LOOK
        + listed * (_BYTES_PER_LISTED_ID + universe.text_bytes // max(len(universe), 1))
        + (len(session.requests) + len(session.conclusions) + len(session.obligations)) * _BYTES_PER_OBLIGATION
        + session.speakers.n_blocks * _BYTES_PER_BLOCK_OF_SPEAKERS
        + len(session.attributes) * _BYTES_PER_ATTRIBUTED_HYPOTHESIS
        + session.attributes.n_bytes
        + sum(len(agents) for _, agents in session.case.agent_lists) * _BYTES_PER_AGENT
    )
