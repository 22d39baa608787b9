"""What the format means: a digest over the types of everything that is recorded."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
from msgspec import inspect

from cmbs.belief.kernel import events as belief
from cmbs.belief.kernel.checkpoint import STATE_DIGESTS as SESSION_DIGESTS
from cmbs.belief.kernel.checkpoint import FrozenSession
from cmbs.belief.kernel.kit_stream import PutKit
from cmbs.belief.kernel.names import NAME_MESSAGES
from cmbs.belief.kernel.session import RecordedOutcome
from cmbs.identity.kernel.stream import CreateKey, KeyEntry, RevokeKey
from cmbs.ledger.entry import EntryBody
from cmbs.ledger.register_entry import RegisterEntry
from cmbs.ledger.state_digest import Spacing, last_digest_point
from cmbs.ledger.tagged_hash import Domain
from cmbs.substrate.kernel import events as substrate
from cmbs.substrate.kernel.checkpoint import STATE_DIGESTS as SPACE_DIGESTS
from cmbs.substrate.kernel.checkpoint import FrozenSpace
from cmbs.transparency.kernel.records import RecordEntry
from cmbs.webhooks.kernel import events as webhooks

_DIGITS = 16
_MAX_DIGEST_POINT = 1_000_000
RECORDED_TYPES: tuple[type, ...] = (
    *(EntryBody, *belief.VERB_OF, RecordedOutcome, FrozenSession),
    *(substrate.SpaceEntry, *substrate.VERB_OF, substrate.StepResult, FrozenSpace),
    *(RegisterEntry, PutKit, *NAME_MESSAGES.values()),
    *(KeyEntry, CreateKey, RevokeKey),
    *(webhooks.WebhookEntry, *webhooks.VERB_OF),
    RecordEntry,
)


def compute_fingerprint() -> str:
    """The fingerprint of the types as they are: their members in order, with types and defaults, and verbs and tags.

    Where the state digests of a stream are is part of it: a chain without one at such a place does not verify.
    """
    classes: dict[type, Any] = {}
    for each in inspect.multi_type_info(RECORDED_TYPES):
        _describe(each, classes)
    # By name, so that a type may move to another module.
    described = sorted([each.__name__, parts] for each, parts in classes.items())
    verbs = {kind.__name__: verb for table in (belief, substrate, webhooks) for kind, verb in table.VERB_OF.items()}
    spacings = {"session": SESSION_DIGESTS.spacing, "space": SPACE_DIGESTS.spacing}
    digest_points = {kind: _list_digest_points(spacing) for kind, spacing in spacings.items()}
    content = json.dumps([described, verbs, list(Domain), digest_points], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:_DIGITS]


def _list_digest_points(spacing: Spacing) -> list[int]:
    """The last one first; the rule goes on beyond as it began."""
    points = []
    point = last_digest_point(_MAX_DIGEST_POINT, spacing)
    while point is not None:
        points.append(point)
        point = last_digest_point(point - 1, spacing)
    return points


def _describe(value: Any, classes: dict[type, Any]) -> Any:
    """A type as JSON; what has members is described once, in `classes`, and goes by its name."""
    if isinstance(value, inspect.EnumType):
        return [value.cls.__name__, *(member.value for member in value.cls)]
    if isinstance(value, (inspect.StructType, inspect.DataclassType, inspect.NamedTupleType)):
        if value.cls not in classes:
            classes[value.cls] = None
            parts = [_describe(getattr(value, part), classes) for part in value.__struct_fields__ if part != "cls"]
            config = getattr(value.cls, "__struct_config__", None)
            classes[value.cls] = [*parts, config is not None and config.omit_defaults]
        return value.cls.__name__
    if isinstance(value, inspect.Field):
        factory = value.default_factory
        default = value.default if factory is msgspec.NODEFAULT else factory()
        shown = bytes(default) if isinstance(default, msgspec.Raw) else default
        return [value.encode_name, _describe(value.type, classes), value.required, repr(shown)]
    if isinstance(value, inspect.Type):
        parts = [_describe(getattr(value, part), classes) for part in value.__struct_fields__]
        return [type(value).__name__, *parts]
    if isinstance(value, (list, tuple)):
        return [_describe(each, classes) for each in value]
    return value if isinstance(value, (str, int, bool, type(None))) else repr(value)
