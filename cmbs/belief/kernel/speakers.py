"""Who spoke against what: for each hypothesis, whether no known actor listed it, exactly one did (which), or several.

That is enough to leave out what any one actor eliminated, and it is kept as bits, in blocks of as many hypotheses as
those of a survivor set. Only actors from a credential are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, compress

import msgspec

from cmbs.belief.kernel.looks import Applied
from cmbs.belief.kernel.survivors import BLOCK_BITS, Universe

_ASCII_BITS = bytes.maketrans(b"01", b"\x00\x01")
_ALL_BITS = (1 << BLOCK_BITS) - 1


class _Bits(msgspec.Struct, frozen=True):
    """A set of places in a universe: the blocks that have any, by number, and how many places they have in all."""

    blocks: Mapping[int, int]
    count: int


_NO_BITS = _Bits({}, 0)


class Speakers:
    """An immutable record of which actors spoke against which hypotheses of a universe."""

    __slots__ = ("_alone", "_listed", "_universe")

    def __init__(self, universe: Universe, listed: _Bits = _NO_BITS, alone: Mapping[str, _Bits] | None = None) -> None:
        """`listed` are the hypotheses that any actor has listed, `alone` those that only the named one has."""
        self._universe = universe
        self._listed = listed
        self._alone: Mapping[str, _Bits] = {} if alone is None else alone

    def hear(self, actor_id: str, hypothesis_ids: Iterable[str]) -> Speakers:
        """The record after an actor spoke against these ids; those that are not of the universe count nowhere."""
        masks = self._masks_of(hypothesis_ids)
        listed, alone = dict(self._listed.blocks), dict(self._alone)
        own = alone.get(actor_id, _NO_BITS)
        own_blocks, n_new = dict(own.blocks), 0
        shared: dict[int, int] = {}
        for number, mask in masks.items():
            before, mine = listed.get(number, 0), own_blocks.get(number, 0)
            fresh, others = mask & ~before, mask & before & ~mine
            if fresh:
                listed[number], own_blocks[number] = before | fresh, mine | fresh
                n_new += fresh.bit_count()
            if others:
                shared[number] = others
        alone[actor_id] = _Bits(own_blocks, own.count + n_new)
        if shared:
            for other_id, bits in self._alone.items():
                if other_id != actor_id:
                    alone[other_id] = _remove(bits, shared)
        return Speakers(self._universe, _Bits(listed, self._listed.count + n_new), alone)

    def count_without(self, actor_id: str) -> int:
        """How many hypotheses no other actor has listed."""
        return len(self._universe) - self._listed.count + self._alone.get(actor_id, _NO_BITS).count

    def is_listed_without(self, actor_id: str, hypothesis_id: str) -> bool:
        """Whether another actor has listed a hypothesis of the universe."""
        number, bit = divmod(self._universe.position(hypothesis_id), BLOCK_BITS)
        return not self._bits_without(actor_id, number) >> bit & 1

    def ids_without(self, actor_id: str) -> Iterator[str]:
        """The hypotheses that no other actor has listed, sorted."""
        ids = self._universe.ids

        def blocks() -> Iterator[Iterator[str]]:
            for start in range(0, len(ids), BLOCK_BITS):
                bits = self._bits_without(actor_id, start // BLOCK_BITS)
                if bits:
                    # One byte for each bit, least significant first.
                    flags = format(bits, f"0{BLOCK_BITS}b").encode()[::-1].translate(_ASCII_BITS)
                    yield compress(ids[start : start + BLOCK_BITS], flags)

        return chain.from_iterable(blocks())

    @property
    def n_blocks(self) -> int:
        """How many blocks of bits it holds, which is what it costs."""
        return len(self._listed.blocks) + sum(len(bits.blocks) for bits in self._alone.values())

    def _masks_of(self, hypothesis_ids: Iterable[str]) -> dict[int, int]:
        universe, masks = self._universe, dict[int, int]()
        for hypothesis_id in hypothesis_ids:
            if hypothesis_id in universe:
                number, bit = divmod(universe.position(hypothesis_id), BLOCK_BITS)
                masks[number] = masks.get(number, 0) | 1 << bit
        return masks

    def _bits_without(self, actor_id: str, number: int) -> int:
        own = self._alone.get(actor_id, _NO_BITS).blocks.get(number, 0)
        return _ALL_BITS & ~self._listed.blocks.get(number, 0) | own


def _remove(bits: _Bits, gone: Mapping[int, int]) -> _Bits:
    """The set without the places of `gone` that it has."""
    blocks, n_gone = dict(bits.blocks), 0
    for number, mask in gone.items():
        hit = blocks.get(number, 0) & mask
        if hit:
            blocks[number] ^= hit
            n_gone += hit.bit_count()
    return _Bits(blocks, bits.count - n_gone) if n_gone else bits


def speakers_of(universe: Universe, records: Iterable[Applied]) -> Speakers:
    """Which actors spoke against which hypotheses in these eliminations."""
    speakers = Speakers(universe)
    for record in records:
        if record.actor_id is not None:
            speakers = speakers.hear(record.actor_id, (*record.applied, *record.ignored))
    return speakers
