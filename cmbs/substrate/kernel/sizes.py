"""About how many bytes of memory a space takes, so that a cache of spaces can be bounded. Pure.

The figures are those of 64-bit CPython, measured; `tests/unit/streams/test_cache_bytes.py` holds them to what
tracemalloc counts.
"""

from __future__ import annotations

from cmbs.substrate.kernel.state import Space

_BYTES_PER_SPACE = 5_000
_BYTES_PER_EVENT = 400
_BYTES_PER_KEY = 250
_BYTES_PER_PROPOSAL = 1_000
_BYTES_PER_RECORD = 1_500
_BYTES_PER_PAGE = 140


def weigh_space(space: Space) -> int:
    """The estimate: what callers sent counts with its length, all else by number."""
    sent = sum(len(key) + len(value) for key, value in space.state.items())
    sent += sum(len(bytes(record.payload)) for record in space.proposals.values())
    sent += sum(len(each.args) + len(each.result) for each in space.executions.values())
    sent += sum(len(entry.claim) for entry in space.memory.values())
    sources = [space.policy_source, *(each.source for each in space.policy_changes.values())]
    sent += sum(len(source.text) for source in sources if source is not None)
    sent += sum(len(case.attributes) for case in space.cases.values())
    records = len(space.executions) + len(space.approvals) + len(space.memory) + len(space.policy_changes)
    records += len(space.tools) + len(space.capabilities) + len(space.parked) + len(space.cases)
    pages = (*space.key_digests.pages.values(), *space.hash_digests.pages.values())
    return (
        _BYTES_PER_SPACE
        + sent
        + len(space.events) * _BYTES_PER_EVENT
        + len(space.tree.blocks)
        + len(space.tree.tail)
        + len(space.state) * _BYTES_PER_KEY
        + len(space.proposals) * _BYTES_PER_PROPOSAL
        + records * _BYTES_PER_RECORD
        + sum(len(page) + _BYTES_PER_PAGE for page in pages)
    )
