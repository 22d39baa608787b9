"""Validation of requests: what callers pass becomes a message, or a clear error before anything is touched.

Everything that comes from outside has a limit here, and every limit has a name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from cmbs.belief.kernel.events import (
    Declare,
    DeclareConclusion,
    Eliminate,
    EnterObligation,
    Event,
    Message,
    Probe,
    RequestExit,
    RequestTermination,
)
from cmbs.errors import InvalidRequest, LimitExceeded
from cmbs.ledger.canonical import MAX_SAFE_INTEGER, encode
from cmbs.messages import Actor, OntologyBundle, ProviderRef, SessionPolicy


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest of everything that a server takes. The names are those of the errors and of the settings."""

    id_length: int = 1024
    hypotheses_per_session: int = 2_000_000
    ids_per_request: int = 2_000_000
    opaque_bytes: int = 1_048_576
    body_bytes: int = 67_108_864
    page_size: int = 10_000
    obligations_per_session: int = 10_000
    cached_sessions: int = 10_000
    cached_session_bytes: int = 1_073_741_824
    analysis_events: int = 20_000
    analysis_steps: int = 200_000
    analyses_waiting: int = 8
    fork_events: int = 20_000


class Command(msgspec.Struct, frozen=True):
    """A message on its way to a session."""

    session_id: str
    message: Message
    idempotency_key: str | None = None
    if_match: str | None = None
    # A declaration is decided before it is queued: it needs no state, and a large one would delay other commits.
    declared: Event | None = None
    # The caller, where it was authenticated.
    actor: Actor | None = None

    @property
    def stream_id(self) -> str:
        """The session's stream, which has its name."""
        return self.session_id


class RequestValidator:
    """Builds messages within limits. Pure."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    def declare(
        self,
        ontology: OntologyBundle,
        hypotheses: Iterable[str],
        metadata: Any,
        policy: SessionPolicy,
        provider: ProviderRef | None,
    ) -> Declare:
        """A declaration; an empty universe is refused, there would be nothing to believe."""
        ids = self._ids("hypotheses", hypotheses, "hypotheses_per_session", self.limits.hypotheses_per_session)
        if not ids:
            raise InvalidRequest("`hypotheses` must hold at least one id")
        self.ontology(ontology)
        if provider is not None:
            self.text("provider.id", provider.id)
            self.text("provider.version", provider.version)
        return Declare(ontology, ids, self._policy(policy), self._opaque("metadata", metadata), provider)

    def ontology(self, ontology: OntologyBundle) -> OntologyBundle:
        """An ontology of texts within the limit."""
        if not isinstance(ontology, OntologyBundle):
            raise InvalidRequest("`ontology` must be an OntologyBundle")
        for name, value in ontology.to_dict().items():
            self.text(f"ontology.{name}", value)
        return ontology

    def command(
        self,
        session_id: str,
        message: Message,
        idempotency_key: str | None = None,
        if_match: str | None = None,
        actor: Actor | None = None,
    ) -> Command:
        """A message to a session that should exist."""
        if idempotency_key is not None:
            self.text("idempotency_key", idempotency_key)
        return Command(self.text("session_id", session_id), message, idempotency_key, if_match, None, actor)

    def eliminate(
        self,
        source_id: str,
        observation_id: str,
        eliminated: Iterable[str],
        justification: Any,
        probe: Probe | None = None,
    ) -> Eliminate:
        """An elimination; its ids sorted and single."""
        return Eliminate(
            self.text("source_id", source_id),
            self.text("observation_id", observation_id),
            self._ids("eliminated", eliminated, "ids_per_request", self.limits.ids_per_request),
            self._opaque("justification", justification),
            probe,
        )

    def probe(self, probe_id: str, response: Any) -> Probe:
        """A provider's probe and the answer of the world, which may be any JSON value."""
        return Probe(self.text("probe_id", probe_id), self._opaque("response", response, object))

    def enter_obligation(self, obligation_id: str, min_total_eliminations: int) -> EnterObligation:
        """An obligation."""
        threshold = self.count("min_total_eliminations", min_total_eliminations)
        return EnterObligation(self.text("obligation_id", obligation_id), threshold)

    def request_exit(self, obligation_id: str, context: Any) -> RequestExit:
        """A wish to leave an obligation."""
        return RequestExit(self.text("obligation_id", obligation_id), self._opaque("context", context))

    def declare_conclusion(self, conclusion_id: str, context: Any) -> DeclareConclusion:
        """A conclusion."""
        return DeclareConclusion(self.text("conclusion_id", conclusion_id), self._opaque("context", context))

    def request_termination(self, context: Any) -> RequestTermination:
        """A wish to end the session."""
        return RequestTermination(self._opaque("context", context))

    def text(self, name: str, value: Any) -> str:
        """An id: any text of Unicode scalar values within the limit."""
        if type(value) is not str:
            raise InvalidRequest(f"`{name}` must be a string", {"field": name})
        if len(value) > self.limits.id_length:
            raise LimitExceeded("id_length", self.limits.id_length, len(value))
        try:
            value.encode()
        except UnicodeEncodeError as exc:
            raise InvalidRequest(f"`{name}` holds a lone surrogate, which is not text", {"field": name}) from exc
        return value

    def page_size(self, asked: int | None) -> int:
        """How many items a page may have."""
        size = self.limits.page_size if asked is None else self.count("limit", asked)
        if size < 1:
            raise InvalidRequest("`limit` must be at least 1", {"field": "limit"})
        if size > self.limits.page_size:
            raise LimitExceeded("page_size", self.limits.page_size, size)
        return size

    def _ids(self, name: str, values: Iterable[str], limit: str, maximum: int) -> list[str]:
        if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable):
            raise InvalidRequest(f"`{name}` must be a list of strings", {"field": name})
        ids = list(values)
        if len(ids) > maximum:
            raise LimitExceeded(limit, maximum, len(ids))
        item = f"{name}[]"
        return sorted({self.text(item, value) for value in ids})

    def _opaque(self, name: str, value: Any, kind: type = dict) -> msgspec.Raw:
        """A caller's own data as canonical JSON: an object unless another kind will do; None is `null`."""
        if value is not None and not isinstance(value, kind):
            raise InvalidRequest(f"`{name}` must be an object", {"field": name})
        raw = encode(value)
        if len(raw) > self.limits.opaque_bytes:
            raise LimitExceeded("opaque_bytes", self.limits.opaque_bytes, len(raw), name)
        return msgspec.Raw(raw)

    def _policy(self, policy: SessionPolicy) -> SessionPolicy:
        if not isinstance(policy, SessionPolicy):
            raise InvalidRequest("`policy` must be a SessionPolicy", {"field": "policy"})
        self.count("policy.stability_window", policy.stability_window)
        for name in ("allow_force", "validate_hypotheses"):
            if type(getattr(policy, name)) is not bool:
                raise InvalidRequest(f"`policy.{name}` must be true or false", {"field": f"policy.{name}"})
        return policy

    @staticmethod
    def count(name: str, value: Any) -> int:
        """A whole number, not negative."""
        if type(value) is not int or not 0 <= value <= MAX_SAFE_INTEGER:
            raise InvalidRequest(f"`{name}` must be a whole number of at least 0", {"field": name})
        return value
