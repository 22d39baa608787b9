"""What a session says of itself as a case: who may work on it, and what people find it by.

A declaration says it first, and UPDATE_CASE changes it; its name is not here, it is in the register of names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from cmbs.errors import InvalidRequest, LimitExceeded
from cmbs.ledger.canonical import encode

MAX_TITLE_LENGTH = 200
MAX_OWNER_LENGTH = 200
MAX_SEVERITY_LENGTH = 40
MAX_LABELS = 32
MAX_LABEL_VALUE_LENGTH = 200
# Who may work on one case. Readings for gates carry all of them.
MAX_CASE_AGENTS = 100
MAX_AGENT_ID_LENGTH = 1024
# As schemas say it: names of labels, and one line that is not empty.
LABEL_NAME_PATTERN = "^[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$"
LINE_PATTERN = r"^ *[^ \x00-\x1f\x7f-\x9f\u2028\u2029][^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
# Of the name of a case.
CASE_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_NAME = re.compile(LABEL_NAME_PATTERN)
# Control characters, separators of lines and paragraphs, and halves of characters.
_NOT_OF_A_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NAME_RULE = "1 to 63 letters, digits, `.`, `_`, `/` or `-`, the first and the last a letter or a digit"
# Each text with its longest length and the name of that limit.
_TEXTS = {
    "title": (MAX_TITLE_LENGTH, "title_length"),
    "owner": (MAX_OWNER_LENGTH, "owner_length"),
    "severity": (MAX_SEVERITY_LENGTH, "severity_length"),
}


class CaseFields(NamedTuple):
    """As an event records them: unset where nothing is said; labels are a canonical JSON object, agents are sorted."""

    title: str | UnsetType = UNSET
    labels: msgspec.Raw | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    severity: str | UnsetType = UNSET
    agents: list[str] | UnsetType = UNSET


NO_FIELDS = CaseFields()


class _Recorded(Protocol):
    """A message that says some of it; in an update, None takes a text away."""

    @property
    def title(self) -> str | UnsetType | None: ...
    @property
    def labels(self) -> msgspec.Raw | UnsetType: ...
    @property
    def owner(self) -> str | UnsetType | None: ...
    @property
    def severity(self) -> str | UnsetType | None: ...
    @property
    def agents(self) -> list[str] | UnsetType: ...


class CaseRecord(msgspec.Struct, frozen=True, array_like=True):
    """The same of a session as it is now: empty texts where there are none, None where agents are not restricted."""

    title: str = ""
    labels: dict[str, str] = {}
    owner: str = ""
    severity: str = ""
    # Each list of agents that the session had, the oldest first, with the seq that it began at; sorted.
    agent_lists: tuple[tuple[int, tuple[str, ...]], ...] = ()

    @property
    def agents(self) -> tuple[str, ...] | None:
        """Who may work on it now."""
        return self.agent_lists[-1][1] if self.agent_lists else None

    def agents_at(self, seq: int) -> tuple[str, ...] | None:
        """Who could work on it right after an event."""
        return next((agents for since, agents in reversed(self.agent_lists) if since <= seq), None)

    def after(self, message: _Recorded, seq: int) -> CaseRecord:
        """The same after what an event says."""
        texts = {name: getattr(message, name) for name in _TEXTS}
        changes: dict[str, Any] = {name: text or "" for name, text in texts.items() if text is not UNSET}
        if not isinstance(message.labels, UnsetType):
            changes["labels"] = msgspec.json.decode(message.labels)
        if not isinstance(message.agents, UnsetType):
            changes["agent_lists"] = (*self.agent_lists, (seq, tuple(message.agents)))
        return msgspec.structs.replace(self, **changes)


def build_case_fields(
    title: Any = None, labels: Any = None, owner: Any = None, severity: Any = None, agents: Any = None
) -> CaseFields:
    """What a caller declares, or a clear error; None and nothing stand for none."""
    texts = {"title": title, "owner": owner, "severity": severity}
    for name, text in texts.items():
        if text is not None:
            _check_text(name, text, *_TEXTS[name])
    listed: list[str] | UnsetType = UNSET
    if agents is not None:
        listed = check_agents(agents)
        if not listed:
            raise InvalidRequest(
                "`agents` must name an agent, or be left out",
                {"field": "agents", "found": [], "accepted": {"minItems": 1}},
            )
    return CaseFields(
        **{name: UNSET if text is None else text for name, text in texts.items()},
        labels=UNSET if labels is None or labels == {} else check_labels(labels),
        agents=listed,
    )


def check_change(name: str, text: Any) -> str | None:
    """A text in an update: None and the empty text take it away."""
    if text is None or text == "":
        return None
    _check_text(name, text, *_TEXTS[name])
    return str(text)


def check_labels(labels: Any) -> msgspec.Raw:
    """Labels as canonical JSON, or a clear error."""
    if not isinstance(labels, dict):
        raise InvalidRequest(
            "`labels` must be an object of names and texts",
            {"field": "labels", "found": type(labels).__name__, "accepted": "an object of names and texts"},
        )
    if len(labels) > MAX_LABELS:
        raise LimitExceeded("labels", MAX_LABELS, len(labels), "labels")
    for name, value in labels.items():
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise InvalidRequest(
                f"`{_shorten(name)}` is no name of a label",
                {"field": "labels", "found": _shorten(name), "accepted": _NAME_RULE},
            )
        _check_text(f"labels.{name}", value, MAX_LABEL_VALUE_LENGTH, "label_value_length")
    return msgspec.Raw(encode(labels))


def check_agents(agents: Any) -> list[str]:
    """Ids of agents, sorted and single, or a clear error."""
    if isinstance(agents, (str, bytes, Mapping)) or not isinstance(agents, Iterable):
        found = type(agents).__name__
        raise InvalidRequest(
            "`agents` must be a list of ids of agents",
            {"field": "agents", "found": found, "accepted": "a list of ids of agents"},
        )
    listed = list(agents)
    if len(listed) > MAX_CASE_AGENTS:
        raise LimitExceeded("case_agents", MAX_CASE_AGENTS, len(listed), "agents")
    for agent_id in listed:
        _check_agent(agent_id)
    return sorted(set(listed))


def require_case_fields(message: _Recorded, *, is_update: bool) -> None:
    """ValueError where an event records what no request could have said."""
    try:
        for name, (longest, limit) in _TEXTS.items():
            text = getattr(message, name)
            if text is not UNSET and (text is not None or not is_update):
                _check_text(name, text, longest, limit)
        labels, agents = message.labels, message.agents
        if not isinstance(labels, UnsetType) and (
            check_labels(msgspec.json.decode(labels)) != labels or (bytes(labels) == b"{}" and not is_update)
        ):
            raise ValueError("its labels are not as they are written")
        if not isinstance(agents, UnsetType) and (check_agents(agents) != agents or not (agents or is_update)):
            raise ValueError("its agents are not as they are written")
    except (InvalidRequest, LimitExceeded, msgspec.DecodeError) as exc:
        raise ValueError(f"what it says of its case could not have been asked for: {exc}") from exc


def _check_agent(agent_id: object) -> None:
    """Any text of Unicode scalar values, as ids are, but an empty one."""
    if not isinstance(agent_id, str) or not agent_id or _SURROGATE.search(agent_id) is not None:
        raise InvalidRequest(
            "`agents` must be ids of agents",
            {"field": "agents", "found": _shorten(agent_id).encode(errors="replace").decode(), "accepted": "ids"},
        )
    if len(agent_id) > MAX_AGENT_ID_LENGTH:
        raise LimitExceeded("agent_id_length", MAX_AGENT_ID_LENGTH, len(agent_id), "agents")


def _check_text(field: str, value: Any, longest: int, limit: str) -> None:
    if not isinstance(value, str):
        raise InvalidRequest(
            f"`{field}` must be a text", {"field": field, "found": type(value).__name__, "accepted": "a text"}
        )
    if len(value) > longest:
        raise LimitExceeded(limit, longest, len(value), field)
    if not value.strip(" ") or _NOT_OF_A_LINE.search(value) is not None:
        raise InvalidRequest(
            f"`{field}` must be one line of text",
            {"field": field, "found": _shorten(value), "accepted": "one line that is not empty"},
        )


def _shorten(value: object) -> str:
    text = value if isinstance(value, str) else type(value).__name__
    return text if len(text) <= MAX_LABEL_VALUE_LENGTH else text[:MAX_LABEL_VALUE_LENGTH] + "…"
