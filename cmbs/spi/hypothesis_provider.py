"""Where a session's hypotheses and the meaning of its probes may come from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class HypothesisProvider(Protocol):
    """A hypothesis space with the probes that tell its hypotheses apart.

    A provider interprets: it knows what a response to a probe rules out. It holds no belief, and it is never told which
    hypotheses survive.

    What MUST hold:

    - `id()` and `version()` never change during the life of the provider. A change of the hypotheses, of the probes or
      of what a response rules out is a new version.
    - For one id and version, `hypothesis_ids()` and `probe_ids()` are always the same ids, each one once.
    - `apply_probe` is deterministic: the same probe and response give the same mask, in every process and at any time.
      It has no effects, and it does not depend on the probes applied before.
    - The mask names only ids of `hypothesis_ids()`, and its values are `True` (eliminated) or `False` (not eliminated).
    - The methods may be called from several threads at once.

    What MAY differ:

    - The mask may omit ids; an omitted hypothesis is not eliminated.
    - The mask may name a hypothesis that was eliminated before; that changes nothing.
    - A response that the provider cannot read may rule out nothing, or raise; what is raised reaches the caller, and
      nothing is eliminated.

    An unknown probe id never reaches `apply_probe`: callers check it against `probe_ids()` first. A provider of many
    ids returns them as a `frozenset`, which callers can keep without a copy.
    """

    def id(self) -> str:
        """Return the name of the hypothesis space."""
        ...

    def version(self) -> str:
        """Return the version of the hypothesis space."""
        ...

    def hypothesis_ids(self) -> Collection[str]:
        """Return every hypothesis of this version."""
        ...

    def probe_ids(self) -> Collection[str]:
        """Return every probe of this version."""
        ...

    def apply_probe(self, probe_id: str, response: Any) -> Mapping[str, bool]:
        """Return the mask of a response: hypothesis id → whether it is eliminated."""
        ...


@runtime_checkable
class AttributedProvider(Protocol):
    """A hypothesis provider that also says something of its hypotheses. Optional: one without the method says nothing.

    For one id and version the attributes are always the same. They are JSON values, by hypothesis and name, and only
    of ids of `hypothesis_ids()`; a session that is declared from the provider records them.
    """

    def hypothesis_attributes(self) -> Mapping[str, Mapping[str, Any]]:
        """Return what is said of hypotheses: hypothesis id → name → value."""
        ...
