"""What a case is opened with, and what it says of a hypothesis."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import msgspec

from cmbs.api.call import Json
from cmbs.errors import Forbidden


class CaseOptions(TypedDict, total=False):
    """What a case is about.

    `kit` is one on record, with `symptoms` where it is over a causal graph; without it, `ontology` and `hypotheses`
    declare the session. `agents` are those who may work on it. With `space`, proposals can be made under the case, and
    `attributes` are for policies to read. `name` is one that no other case has; it is found by that, and by `title`,
    `owner`, `severity` and `labels`.
    """

    kit: str | Mapping[str, str]
    symptoms: Sequence[str]
    space: str
    name: str
    owner: str
    severity: str
    agents: Sequence[str]
    attributes: Mapping[str, Json]
    ontology: Mapping[str, str]
    hypotheses: Sequence[str]
    metadata: Mapping[str, Json]
    title: str
    labels: Mapping[str, str]


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a hypothesis is, or is not, among the survivors.

    Of one that was ruled out: the event, who reported what was seen, the observation and its justification, and a proof
    that can be checked without the server. Of one that survives, only the proof that it does.
    """

    hypothesis_id: str
    survives: bool
    proof: dict[str, Any]
    seq: int | None = None
    event_id: str | None = None
    ts: str | None = None
    source_id: str | None = None
    observation_id: str | None = None
    probe: dict[str, Any] | None = None
    justification: dict[str, Any] | None = None
    actor: dict[str, Any] | None = None

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""
        if self.survives:
            return f"`{self.hypothesis_id}` survives: nothing that was seen speaks against it"
        seen = (
            ""
            if self.probe is None
            else f", which saw `{json.dumps(self.probe['response'])}` at `{self.probe['probe_id']}`"
        )
        return f"`{self.hypothesis_id}` was ruled out at seq {self.seq} by `{self.source_id}`{seen}"


def refuse_admission(space_id: str, case_id: str | None) -> Forbidden:
    """That a key may not admit a case to a space; `case_id` is None where none was declared for that reason."""
    what = "a new case" if case_id is None else f"case `{case_id}`"
    return Forbidden(
        f"this key may not admit {what} to space `{space_id}`",
        {
            "reason": "not_an_operator",
            "field": "space",
            "found": space_id,
            "accepted": "an operator, or a key with the scope `spaces:cases` that is no agent's",
            "next": f"have an operator admit it to `{space_id}` and name it here, or work on it without a space",
        },
    )


def read_elimination(hypothesis_id: str, proof: dict[str, Any]) -> Why:
    """Why a hypothesis was ruled out, from the proof of it."""
    entry = json.loads(proof["cause"]["entry"])
    payload = entry["payload"]
    return Why(
        hypothesis_id=hypothesis_id,
        survives=False,
        proof=proof,
        seq=entry["seq"],
        event_id=entry["event_id"],
        ts=entry["ts"],
        source_id=payload.get("source_id"),
        observation_id=payload.get("observation_id"),
        probe=payload.get("probe"),
        justification=payload.get("justification"),
        actor=entry.get("actor"),
    )
