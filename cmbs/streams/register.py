"""Registers: small streams beside the planes, such as kits and the names of cases.

A register is a prefix, the messages of its verbs, `decide` and `evolve`. How its entries look, how they are stamped,
chained, replayed and written is here, once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from cmbs.errors import BeliefServerError, LedgerCorrupt
from cmbs.ledger import GENESIS, Head, StoredEntry, replay, seal
from cmbs.ledger.canonical import encode_frame
from cmbs.ledger.register_entry import RegisterEntry
from cmbs.messages import Actor
from cmbs.spi.audit_log import Append
from cmbs.spi.environment import Clock, IdSource
from cmbs.streams.kinds import S

M = TypeVar("M", bound=msgspec.Struct)


class RegisterEvent(NamedTuple, Generic[M]):
    """A decision, ready to be written: the message, the content of its entry, and the exact bytes."""

    message: M
    body: RegisterEntry
    stored: StoredEntry

    @property
    def head(self) -> Head:
        """Where its stream ends with it."""
        return Head(self.body.seq, self.stored.event_hash)

    @property
    def append(self) -> Append:
        """What a log is given to write."""
        body = self.body
        previous = bytes.fromhex(body.prev_event_hash)
        return Append(body.stream_id, body.seq, body.event_id, previous, self.stored, body.ts)


class RegisterCommand(NamedTuple, Generic[M]):
    """A message on its way to a stream of a register, and who sends it."""

    stream_id: str
    message: M
    by: Actor


class RegisterAnswer(NamedTuple, Generic[S]):
    """What a message led to; `repeated` where it was so before, and nothing was recorded."""

    state: S
    repeated: bool


class Register(Generic[S, M]):
    """A kind of register; also how states of its streams follow from their entries.

    `decide` is given the stream, its state (None for one that is not there), the message and its sender, and says
    whether the message is to be recorded: false where everything is so already. It raises what the caller is to be
    told, and InvalidRequest or ValueError for what no caller could have sent. `not_found` is the error of a stream that
    is not there. A prefix that does not end in a colon is the name of the one stream.
    """

    def __init__(
        self,
        prefix: str,
        messages: Mapping[str, type[M]],
        decide: Callable[[str, S | None, M, Actor], bool],
        evolve: Callable[[S | None, M, RegisterEntry, Head], S],
        not_found: Callable[[str], BeliefServerError],
    ) -> None:
        self.prefix = prefix
        self._verbs = {kind: str(verb) for verb, kind in messages.items()}
        # Made here, by one thread: msgspec crashes where several meet a type for the first time.
        self._entries = msgspec.json.Decoder(RegisterEntry)
        self._messages: dict[str, Any] = {str(verb): msgspec.json.Decoder(kind) for verb, kind in messages.items()}
        self._decide = decide
        self.not_found = not_found
        self._evolve_message = evolve
        self._rules = replay.ReplayRules[S, RegisterEvent[M]](self.read, self._decide_again, self._evolve)

    def owns(self, stream_id: str) -> bool:
        """Whether a stream of this name is of this register."""
        return stream_id.startswith(self.prefix) if self.prefix.endswith(":") else stream_id == self.prefix

    def catch_up(self, stream_id: str, state: S | None, entries: Iterable[StoredEntry]) -> S | None:
        """Verify `entries` as what follows `state`, and fold them in: every message is decided again."""
        return replay.catch_up(self._rules, stream_id, state, entries)

    def verify(self, stream_id: str, entries: Sequence[StoredEntry], head: Head) -> S:
        """The state of a whole stream that ends in `head`; LedgerCorrupt where it does not."""
        state = self.catch_up(stream_id, None, entries)
        if state is None or state.head != head:
            seq = -1 if state is None else state.head.seq
            raise LedgerCorrupt(stream_id, seq + 1, f"the stream ends after seq {seq}, and not in the recorded head")
        return state

    def fold(self, state: S | None, stored: StoredEntry) -> tuple[S, Append]:
        """The state after an entry that was verified."""
        event = self.read(stored)
        return self._evolve(state, event), event.append

    def read(self, stored: StoredEntry) -> RegisterEvent[M]:
        """The event that stored bytes hold; ValueError where they hold none."""
        body = self._entries.decode(stored.raw)
        if body.verb not in self._messages:
            raise ValueError(f"unknown verb `{body.verb}`")
        return RegisterEvent(self._messages[body.verb].decode(body.payload), body, stored)

    def record(
        self, stream_id: str, state: S | None, message: M, by: Actor, event_id: str, ts: str
    ) -> RegisterEvent[M] | None:
        """The event of a message; None where everything is so already."""
        if not self._decide(stream_id, state, message, by):
            return None
        seq, previous = (0, GENESIS) if state is None else (state.head.seq + 1, state.head.event_hash)
        payload = msgspec.Raw(encode_frame(message))
        verb = self._verbs[type(message)]
        body = RegisterEntry(by, event_id, None, payload, previous.hex(), seq, stream_id, ts, verb)
        return RegisterEvent(message, body, seal(body))

    def _evolve(self, state: S | None, event: RegisterEvent[M]) -> S:
        return self._evolve_message(state, event.message, event.body, event.head)

    def _decide_again(self, stream_id: str, state: S | None, recorded: RegisterEvent[M]) -> RegisterEvent[M]:
        body = recorded.body
        body.actor.require_sorted()
        again = self.record(stream_id, state, recorded.message, body.actor, body.event_id, body.ts)
        if again is None:
            raise ValueError("it says what was so before, and a repeat is never recorded")
        return again


class RegisterKind(Generic[S, M]):
    """The streams of a register as `StreamServer` carries out commands on them."""

    def __init__(self, register: Register[S, M], clock: Clock, ids: IdSource) -> None:
        self._register = register
        self._clock = clock
        self._ids = ids
        self.owns = register.owns
        self.not_found = register.not_found
        self.catch_up = register.catch_up
        self.fold = register.fold

    def opens(self, command: RegisterCommand[M]) -> bool:  # noqa: ARG002 - `decide` knows
        """Any message may be the first; those that cannot be are refused when they are decided."""
        return True

    def decide(self, state: S | None, command: RegisterCommand[M]) -> tuple[RegisterAnswer[S], tuple[S, Append] | None]:
        """Decide on the newest state."""
        register, (stream_id, message, by) = self._register, command
        event = register.record(stream_id, state, message, by, self._ids.new_id(), self._clock.now())
        if event is not None:
            after, append = register.fold(state, event.stored)
            return RegisterAnswer(after, repeated=False), (after, append)
        if state is None:  # pragma: no cover - what is not there cannot be so already
            raise register.not_found(stream_id)
        return RegisterAnswer(state, repeated=True), None
