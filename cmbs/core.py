"""The kernel: what can still be true, and what may be asked of it.

The rules are small pure pieces (`entropy`, `Obligation`, `is_stable`), so that the session layer and `CMBSCore` apply
the same ones. `CMBSCore` is a mutable facade over sets and these rules. It observes: results come in, hypotheses go out
of the set and never come back. What is observed, in which order and why is decided elsewhere.

Hypothesis ids are opaque: any hashable value, compared and never looked into. The ids of probes, observables,
obligations and conclusions are opaque strings.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

_STATE_VERSION = 1


def entropy(n: int) -> float:
    """Return the bits needed to name one of `n` survivors: log2(n), and 0.0 for one or none."""
    return math.log2(n) if n > 1 else 0.0


def is_stable(conclusions: Sequence[str], window: int) -> bool:
    """Tell whether the last `window` conclusions exist and are all equal; a window of 0 asks for nothing.

    Only the tail is read, so the answer costs the same however long the history is.
    """
    if window == 0:
        return True
    tail = conclusions[-window:]
    return len(tail) == window and all(conclusion == tail[0] for conclusion in tail)


class Obligation(NamedTuple):
    """A requirement to eliminate at least `min_eliminations` hypotheses between entry and exit."""

    obligation_id: str
    min_eliminations: int
    eliminations: int = 0
    active: bool = True

    def credit(self, count: int) -> Obligation:
        """Return the obligation with `count` more eliminations; one that was left no longer counts."""
        return self._replace(eliminations=self.eliminations + count) if self.active else self

    @property
    def may_exit(self) -> bool:
        """Whether enough was eliminated since entry."""
        return self.eliminations >= self.min_eliminations

    def exit(self) -> Obligation:
        """Return the obligation as it is after it was left: its count is final."""
        return self._replace(active=False)


class ProbeResult(NamedTuple):
    """Whether a probe's result was taken in; if not, `error` says why and nothing has changed."""

    accepted: bool
    error: str | None = None


class ObligationExitResult(NamedTuple):
    """Whether an obligation was left; if not, `error` says why and nothing has changed."""

    permitted: bool
    error: str | None = None


class TerminationResult(NamedTuple):
    """Whether termination was granted; if not, `error` says why and nothing has changed."""

    permitted: bool
    error: str | None = None


class EliminationEvent(NamedTuple):
    """What one probe newly eliminated; `eliminated` is never empty."""

    probe_id: str
    observable_id: str
    eliminated: frozenset[Hashable]


class CMBSCore:
    """A set of hypotheses that only shrinks, with the obligations and conclusions declared about it.

    Obligations are entered and left by the caller alone. Termination happens on request alone and is gated by the
    stability window alone: neither obligations nor the number of survivors matter at this level (the rules of sessions
    are in `cmbs.belief.kernel.session`). Once terminated, the core accepts no further probe.
    """

    __slots__ = (
        "_conclusions",
        "_consumed_probes",
        "_history",
        "_obligations",
        "_stability_window",
        "_survivors",
        "_terminated",
        "_universe",
    )

    def __init__(self, hypothesis_ids: Iterable[Hashable], stability_window: int = 0) -> None:
        """Start with every hypothesis alive; repeated ids are one hypothesis."""
        if stability_window < 0:
            raise ValueError(f"stability window must not be negative, got `{stability_window}`")
        self._universe = frozenset(hypothesis_ids)
        self._stability_window = stability_window
        self._survivors = set(self._universe)
        self._consumed_probes: set[str] = set()
        self._obligations: dict[str, Obligation] = {}
        self._conclusions: list[str] = []
        self._history: list[EliminationEvent] = []
        self._terminated = False

    @property
    def survivors(self) -> set[Hashable]:
        """The hypotheses not eliminated so far, as a copy."""
        return set(self._survivors)

    @property
    def consumed_probes(self) -> set[str]:
        """The ids of all accepted probes, as a copy."""
        return set(self._consumed_probes)

    @property
    def active_obligations(self) -> set[str]:
        """The ids of the obligations entered and not yet left, as a copy."""
        return {obligation_id for obligation_id, obligation in self._obligations.items() if obligation.active}

    @property
    def entropy(self) -> float:
        """The bits left to decide: log2 of the number of survivors, 0.0 for one or none."""
        return entropy(len(self._survivors))

    @property
    def is_terminated(self) -> bool:
        """Whether a request for termination was granted."""
        return self._terminated

    def submit_probe_result(self, probe_id: str, observable_id: str, eliminated: Iterable[Hashable]) -> ProbeResult:
        """Take in what a probe ruled out; ids that are unknown or already eliminated are ignored.

        A probe id is consumed by its first accepted result, even an empty one. A repeat is refused whatever it says.
        """
        if probe_id in self._consumed_probes:
            return ProbeResult(accepted=False, error=f"probe `{probe_id}` was already consumed")
        if self._terminated:
            return ProbeResult(accepted=False, error=f"probe `{probe_id}` came after termination")
        newly_eliminated = frozenset(eliminated) & self._survivors
        self._consumed_probes.add(probe_id)
        if newly_eliminated:
            self._survivors -= newly_eliminated
            self._history.append(EliminationEvent(probe_id, observable_id, newly_eliminated))
            count = len(newly_eliminated)
            self._obligations = {key: obligation.credit(count) for key, obligation in self._obligations.items()}
        return ProbeResult(accepted=True)

    def enter_obligation(self, obligation_id: str, min_eliminations: int = 1) -> None:
        """Start counting eliminations for an obligation; one that was left before starts again from zero."""
        if min_eliminations < 0:
            raise ValueError(
                f"threshold of obligation `{obligation_id}` must not be negative, got `{min_eliminations}`"
            )
        if self.is_obligation_active(obligation_id):
            raise ValueError(f"obligation `{obligation_id}` is already active")
        self._obligations[obligation_id] = Obligation(obligation_id, min_eliminations)

    def request_obligation_exit(self, obligation_id: str) -> ObligationExitResult:
        """Leave an obligation if enough was eliminated since it was entered."""
        obligation = self._obligations.get(obligation_id)
        if obligation is None or not obligation.active:
            return ObligationExitResult(permitted=False, error=f"obligation `{obligation_id}` is not active")
        if not obligation.may_exit:
            return ObligationExitResult(
                permitted=False,
                error=f"obligation `{obligation_id}` needs {obligation.min_eliminations} eliminations "
                f"and has {obligation.eliminations}",
            )
        self._obligations[obligation_id] = obligation.exit()
        return ObligationExitResult(permitted=True)

    def is_obligation_active(self, obligation_id: str) -> bool:
        """Tell whether the obligation was entered and not yet left."""
        obligation = self._obligations.get(obligation_id)
        return obligation is not None and obligation.active

    def declare_conclusion(self, conclusion_id: str) -> None:
        """Record what the caller concludes now; only the stability window ever looks at it."""
        self._conclusions.append(conclusion_id)

    def request_termination(self) -> TerminationResult:
        """Terminate if the stability window is satisfied; what was granted once stays granted."""
        if not self._terminated and not is_stable(self._conclusions, self._stability_window):
            return TerminationResult(
                permitted=False,
                error=f"the last {self._stability_window} conclusions are not stable",
            )
        self._terminated = True
        return TerminationResult(permitted=True)

    def get_elimination_history(self) -> list[EliminationEvent]:
        """Return the eliminations in the order they happened; probes that eliminated nothing are not among them."""
        return list(self._history)

    def serialize(self) -> dict[str, Any]:
        """Return the whole state as JSON values; equal states give equal values.

        JSON carries strings and integers back unchanged; an id of another type raises ValueError.
        """
        return {
            "v": _STATE_VERSION,
            "universe": _id_list(self._universe),
            "survivors": _id_list(self._survivors),
            "consumed_probes": _id_list(self._consumed_probes),
            "obligations": [self._obligations[key]._asdict() for key in _id_list(self._obligations)],
            "conclusions": [_as_id(conclusion_id) for conclusion_id in self._conclusions],
            "history": [
                {
                    "probe_id": event.probe_id,
                    "observable_id": _as_id(event.observable_id),
                    "eliminated": _id_list(event.eliminated),
                }
                for event in self._history
            ],
            "stability_window": self._stability_window,
            "terminated": self._terminated,
        }

    @classmethod
    def deserialize(cls, state: Mapping[str, Any]) -> CMBSCore:
        """Return the core that `serialize` described; a state that no core can have raises ValueError."""
        version = _field(state, "v", int)
        if version != _STATE_VERSION:
            raise ValueError(f"unknown state version `{version}`, expected {_STATE_VERSION}")
        core = cls(_ids(state, "universe"), _count(state, "stability_window"))
        core._survivors = set(_ids(state, "survivors"))
        core._consumed_probes = set(_ids(state, "consumed_probes"))
        obligations = [_obligation(each) for each in _field(state, "obligations", list)]
        core._obligations = {obligation.obligation_id: obligation for obligation in obligations}
        if len(core._obligations) != len(obligations):
            raise ValueError("an obligation is listed twice")
        core._conclusions = _ids(state, "conclusions")
        core._history = [_elimination_event(each) for each in _field(state, "history", list)]
        core._terminated = _field(state, "terminated", bool)
        core._check_consistency()
        return core

    def _check_consistency(self) -> None:
        unknown = self._survivors - self._universe
        if unknown:
            raise ValueError(f"survivors are not in the universe: {_quote(unknown)}")
        gone = set(self._universe - self._survivors)
        for event in self._history:
            if event.probe_id not in self._consumed_probes:
                raise ValueError(f"probe `{event.probe_id}` is in the history but was not consumed")
            if not event.eliminated or not event.eliminated <= gone:
                raise ValueError(f"history of probe `{event.probe_id}` disagrees with the survivors")
            gone -= event.eliminated
        if gone:
            raise ValueError(f"hypotheses are missing from survivors and history: {_quote(gone)}")


def _as_id(value: object) -> Any:
    if not isinstance(value, str | int):
        raise ValueError(f"`{value!r}` is not an id that JSON can carry")  # noqa: TRY004 - a bad value of the state
    return value


def _id_list(ids: Iterable[Hashable]) -> list[Any]:
    # Strings and integers do not compare with each other, so the integers go first.
    return sorted(map(_as_id, ids), key=lambda each: (isinstance(each, str), each))


def _quote(ids: Iterable[Hashable]) -> str:
    return ", ".join(f"`{each}`" for each in _id_list(ids))


def _require(state: object, name: str) -> Any:
    if not isinstance(state, Mapping):
        raise ValueError(f"expected an object with field `{name}`, got {type(state).__name__}")  # noqa: TRY004
    if name not in state:
        raise ValueError(f"field `{name}` is missing")
    return state[name]


def _field(state: object, name: str, kind: type) -> Any:
    value = _require(state, name)
    # Exact types: isinstance would let a bool pass for a count.
    if type(value) is not kind:
        raise ValueError(f"field `{name}` must be {kind.__name__}, got {type(value).__name__}")
    return value


def _count(state: object, name: str) -> int:
    value: int = _field(state, name, int)
    if value < 0:
        raise ValueError(f"field `{name}` must not be negative, got `{value}`")
    return value


def _ids(state: object, name: str) -> list[Any]:
    return [_as_id(each) for each in _field(state, name, list)]


def _obligation(state: object) -> Obligation:
    return Obligation(
        obligation_id=_as_id(_require(state, "obligation_id")),
        min_eliminations=_count(state, "min_eliminations"),
        eliminations=_count(state, "eliminations"),
        active=_field(state, "active", bool),
    )


def _elimination_event(state: object) -> EliminationEvent:
    return EliminationEvent(
        probe_id=_as_id(_require(state, "probe_id")),
        observable_id=_as_id(_require(state, "observable_id")),
        eliminated=frozenset(_ids(state, "eliminated")),
    )
