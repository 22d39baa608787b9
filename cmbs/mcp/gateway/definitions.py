"""What an MCP server says of its tools: hashes of whole definitions, classes of changes, names and hints. Pure.

A definition is the JSON object that the server sent, with every field of it. Pinned is all of it: a description can
carry instructions to a model, and a hint that is flipped turns a call that asks into one that does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Any

import msgspec

from cmbs.ledger import canonical
from cmbs.ledger.tagged_hash import Domain, hash_tagged

Definition = Mapping[str, Any]

# What is beside the tools of a server: methods of MCP that only read, pinned under their own names.
GET_PROMPT = "prompts/get"
READ_RESOURCE = "resources/read"
COMPLETE = "completion/complete"
READS = frozenset({GET_PROMPT, READ_RESOURCE, COMPLETE})

MAX_NAME_CHARACTERS = 64
_DIGEST_CHARACTERS = 8
_SCHEMAS = ("inputSchema", "outputSchema")
_HINTS = ("annotations", "execution")
# Verbs that change something. A tool with one of them in its name is not taken for read-only, whatever it says. Words
# that are nouns more often (release, issue, order, build) are left out.
_CHANGING_VERBS = """
    abort accept ack acknowledge acquire activate add adjust admit advance allocate alter annotate append apply
    approve archive arm assign attach authorise authorize ban block book boot broadcast bump buy cancel change charge
    checkout chgrp chmod chown claim clean cleanup clear clone close collapse commit compact complete configure
    confirm consume copy cordon crash create credit cut deactivate deallocate debit decline decommission decrement
    delegate delete demote deny deploy deprecate deregister destroy detach disable discard disconnect dismiss dispatch
    donate downgrade downscale drain drop edit eject email emit empty enable end enqueue enrol enroll erase evict exec
    execute expire extend fail failover fill fix flash flip flush force forget fork format forward free freeze
    generate give grant halt hibernate hide import increment init initialise initialize inject insert install invite
    invoke isolate join kick kill launch leave lock login logout mail mark merge migrate mkdir modify mount move
    mutate mute mv notify nuke offboard onboard override overwrite patch pause pay permit persist pin poison populate
    post preempt prepend promote propagate provision prune publish purchase purge push put quarantine reassign
    rebalance rebase reboot rebuild recover recreate recycle redeploy redo redrive refund register reindex reinstall
    reject reload remediate remove rename renew reopen reorder repair replace replay reply reprovision requeue reroute
    rerun reschedule reset resize resolve restart restore resume retire retry revert revoke rewrite rm rmdir roll
    rollback rotate run save scale sell send set share shred shut shutdown sign skip spawn spend split squash stage
    start stash stop strip submit subscribe suspend swap switch sync tag taint takeover teardown terminate throttle
    toggle touch trade transfer trash trigger trim truncate turn unarchive unassign unban unblock uncordon undelete
    undeploy undo unfreeze uninstall unlink unlock unmount unmute unpin unpublish unregister unset unshare unstage
    unsubscribe unsuspend untag update upgrade uplift upload upscale upsert vacuum vote wake wipe withdraw write zap
    zero
"""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# What Unicode (UTS #39, `confusables.txt`) says of look-alikes within ASCII, for the characters of names. Names with
# any other character are never taken for read-only, so no more of that table can make a difference.
_LOOK_ALIKES = str.maketrans({"0": "o", "1": "l", "I": "l", "|": "l"})


class ChangeKind(StrEnum):
    """How a definition differs from the one that is pinned; of several, the first in this order is given."""

    HINT = "hint"
    SCHEMA = "schema"
    COSMETIC = "cosmetic"
    RENAMED = "renamed"
    NEW = "new"
    GONE = "gone"


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """A difference that waits for an operator. `was` is the name before, of one that was renamed."""

    kind: ChangeKind
    name: str
    before: str | None = None
    after: str | None = None
    fields: tuple[str, ...] = ()
    was: str | None = None

    @property
    def suspends(self) -> bool:
        """Whether calls wait too: what a call would do is another than what the pinned definition says."""
        return self.kind in (ChangeKind.HINT, ChangeKind.SCHEMA, ChangeKind.GONE)


def hash_definition(definition: Definition) -> str:
    """The tagged hash, in hex, of the canonical bytes of all of it; InvalidRequest where it has none."""
    return hash_tagged(Domain.DEFINITION, canonical.encode(dict(definition))).hex()


def find_changes(pinned: Mapping[str, Definition], listed: Mapping[str, Definition]) -> list[Change]:
    """What differs between the definitions that are pinned and those that the server lists now, by name."""
    changes: list[Change] = []
    gone = {_hash_nameless(pinned[name]): name for name in sorted(pinned.keys() - listed.keys())}
    for name in sorted(listed):
        definition = listed[name]
        after = hash_definition(definition)
        if name in pinned:
            before = hash_definition(pinned[name])
            if before != after:
                fields = _differing(pinned[name], definition)
                changes.append(Change(_classify(fields), name, before, after, fields))
            continue
        was = gone.pop(_hash_nameless(definition), None)
        if was is not None:
            changes.append(Change(ChangeKind.RENAMED, name, hash_definition(pinned[was]), after, ("name",), was))
        else:
            changes.append(Change(ChangeKind.NEW, name, after=after))
    missing = sorted(pinned.keys() - listed.keys())
    changes += [Change(ChangeKind.GONE, name, hash_definition(pinned[name])) for name in missing]
    return changes


def is_read_only(definition: Definition) -> bool:
    """Whether it says that it reads only, and neither its name nor another hint says otherwise.

    A name that is not plain ASCII says otherwise: `delete_x` with a Cyrillic letter reads like another.
    """
    name = str(definition.get("name", ""))
    says_so = _hint(definition, "readOnlyHint") and not _hint(definition, "destructiveHint")
    return says_so and (name in READS or (name.isascii() and not _CHANGING.intersection(_words(name))))


def is_idempotent(definition: Definition) -> bool:
    """Whether it says that calling it again does no more than calling it once."""
    return _hint(definition, "idempotentHint")


def expose_name(upstream: str, name: str, *, several: bool) -> str:
    """The name that agents see: the server's own, or with the server before it where there are several.

    Hosts take 64 characters. A longer name is cut, and ends in a digest of all of it.
    """
    exposed = f"{upstream}_{name}" if several else name
    if len(exposed) <= MAX_NAME_CHARACTERS:
        return exposed
    digest = sha256(exposed.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{exposed[: MAX_NAME_CHARACTERS - _DIGEST_CHARACTERS - 1]}_{digest}"


def describe_change(change: Change) -> str:
    """A change in one line."""
    told = {
        ChangeKind.NEW: "is new",
        ChangeKind.GONE: "is no longer listed",
        ChangeKind.RENAMED: f"was called `{change.was}`",
    }
    return told.get(change.kind, f"has another {_join(change.fields)} ({change.kind.value})")


def _join(fields: Iterable[str]) -> str:
    return ", ".join(f"`{field}`" for field in fields)


def _differing(before: Definition, after: Definition) -> tuple[str, ...]:
    return tuple(sorted(field for field in before.keys() | after.keys() if before.get(field) != after.get(field)))


def _classify(fields: tuple[str, ...]) -> ChangeKind:
    if any(field in _HINTS for field in fields):
        return ChangeKind.HINT
    return ChangeKind.SCHEMA if any(field in _SCHEMAS for field in fields) else ChangeKind.COSMETIC


def _hash_nameless(definition: Definition) -> str:
    return hash_definition({field: value for field, value in definition.items() if field not in ("name", "title")})


def _hint(definition: Definition, name: str) -> bool:
    annotations = definition.get("annotations")
    return isinstance(annotations, Mapping) and annotations.get(name) is True


def _words(name: str) -> frozenset[str]:
    """The words of a name, and those of what it looks like."""
    words = _WORDS.findall(name) + _WORDS.findall(name.translate(_LOOK_ALIKES))
    return frozenset(_skeleton(word) for word in words)


def _skeleton(word: str) -> str:
    """The same for two words that look the same: `rn` reads as `m`."""
    return word.lower().translate(_LOOK_ALIKES).replace("m", "rn")


_CHANGING = frozenset(map(_skeleton, _CHANGING_VERBS.split()))
