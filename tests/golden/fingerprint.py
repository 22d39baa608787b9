"""What the format means: a digest over the types of everything that is recorded."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
from msgspec import inspect

from cmbs.belief.kernel import events as belief
from cmbs.belief.kernel.checkpoint import FrozenSession
from cmbs.belief.kernel.kit_stream import KitEntry, PutKit
from cmbs.belief.kernel.session import RecordedOutcome
from cmbs.identity.kernel.stream import CreateKey, KeyEntry, RevokeKey
from cmbs.ledger.entry import EntryBody
from cmbs.ledger.tagged_hash import Domain
from cmbs.substrate.kernel import events as substrate
from cmbs.substrate.kernel.checkpoint import FrozenSpace
from cmbs.transparency.kernel.records import RecordEntry
from cmbs.webhooks.kernel import events as webhooks

_DIGITS = 16
RECORDED_TYPES: tuple[type, ...] = (
    *(EntryBody, *belief.VERB_OF, RecordedOutcome, FrozenSession),
    *(substrate.SpaceEntry, *substrate.VERB_OF, substrate.StepResult, FrozenSpace),
    *(KitEntry, PutKit),
    *(KeyEntry, CreateKey, RevokeKey),
    *(webhooks.WebhookEntry, *webhooks.VERB_OF),
    RecordEntry,
)


def compute_fingerprint() -> str:
    """The fingerprint of the types as they are: their members in order, with types and defaults, and verbs and tags."""
    classes: dict[type, Any] = {}
    for each in inspect.multi_type_info(RECORDED_TYPES):
        _describe(each, classes)
    # By name, so that a type may move to another module.
    described = sorted([each.__name__, parts] for each, parts in classes.items())
    verbs = {kind.__name__: verb for table in (belief, substrate, webhooks) for kind, verb in table.VERB_OF.items()}
    content = json.dumps([described, verbs, list(Domain)], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:_DIGITS]


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
