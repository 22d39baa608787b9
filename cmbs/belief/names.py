"""The names of the cases of a server: claimed, given up, and found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cmbs.belief.kernel.names import (
    NAME_MESSAGES,
    CaseNames,
    ClaimName,
    NameMessage,
    ReleaseName,
    check_name,
    decide_name,
    evolve_names,
    may_be_name,
    refuse_taken,
)
from cmbs.errors import InvalidRequest, RecordNotFound
from cmbs.ledger import Head, StoredEntry
from cmbs.messages import Actor, ActorKind
from cmbs.spi import Append, AuditLog, Clock, IdSource
from cmbs.spi.audit_log import NAMES_STREAM
from cmbs.spi.session_search import MAX_IDS
from cmbs.streams.register import Register, RegisterAnswer, RegisterCommand, RegisterKind
from cmbs.streams.server import StreamServer

# A process that can write to the store may name cases there.
COMMAND_LINE = Actor(ActorKind.OPERATOR, "command-line")
NAMES: Register[CaseNames, NameMessage] = Register(
    NAMES_STREAM,
    NAME_MESSAGES,
    decide_name,
    evolve_names,
    lambda stream_id: RecordNotFound("stream", stream_id, where="this server"),
)


class NameRegistry:
    """The names in a log. Methods may be called from several threads at once."""

    def __init__(self, log: AuditLog, clock: Clock, ids: IdSource) -> None:
        self._log = log
        self._streams: StreamServer[CaseNames, RegisterCommand[NameMessage], RegisterAnswer[CaseNames]] = StreamServer(
            log, RegisterKind(NAMES, clock, ids), capacity=1, grouped=False
        )

    def resolve(self, text: str) -> str:
        """The id of the case that is meant: an id is what it is, and a name is that of its case.

        A text that is neither is given back as it is, so that the search for a session says what is not there.
        """
        if not may_be_name(text) or self._log.head(text) is not None:
            return text
        names = self.read()
        found = None if names is None else names.find(text)
        return text if found is None else found

    def find(self, name: str) -> str | None:
        """The case that has a name."""
        names = self.read()
        return None if names is None else names.find(name)

    def name_of(self, session_id: str) -> str | None:
        """The name of a case; None where it has none."""
        names = self.read()
        return None if names is None else names.name_of(session_id)

    def search(self, text: str) -> tuple[str, ...]:
        """Cases with this text in their name, as many as a query can name."""
        names = self.read()
        return () if names is None or not text else tuple(names.search(text, MAX_IDS))

    def read(self) -> CaseNames | None:
        """All names, as the log has them now; None where there never was one."""
        known = self._streams.find_cached(NAMES_STREAM)
        return known if known is not None and self._log.head(NAMES_STREAM) == known.head else self._peek()

    def require_free(self, name: str, session_id: str) -> str:
        """The name, if a case could claim it now; Conflict where another has it."""
        check_name(name)
        if self._log.head(name) is not None:
            raise InvalidRequest(
                f"`{name}` is the id of a session, so it cannot be the name of a case",
                {"field": "name", "found": name, "accepted": "a name that is no id of a session"},
            )
        holder = self.find(name)
        if holder not in (None, session_id):
            raise refuse_taken(name, f"{holder}")
        return name

    def claim(self, name: str, session_id: str, by: Actor | None = None, *, instead_of: str | None = None) -> None:
        """Have a case take a name; durable when it returns. Conflict where another has it."""
        self.require_free(name, session_id)
        self._perform(ClaimName(name, session_id, instead_of), by)

    def rename(self, session_id: str, name: str, by: Actor | None = None) -> None:
        """Give a case this name, whatever it had before. For operators."""
        self.claim(name, session_id, by, instead_of=self.name_of(session_id))

    def release(self, session_id: str, by: Actor | None = None) -> None:
        """Take the name of a case away; another may then take it. For operators; harmless where there is none."""
        name = self.name_of(session_id)
        if name is not None:
            self._perform(ReleaseName(name, session_id), by)

    def import_names(self, entries: Sequence[StoredEntry], head: Head) -> None:
        """Take names over from their log, each that is free here for a case that is here and has none.

        Where there are no names yet and all the cases are here, the log is taken over byte for byte. LedgerCorrupt
        where it does not verify to `head`. A name in use is never taken.
        """
        brought = NAMES.verify(NAMES_STREAM, entries, head)
        if self._peek() is None and all(self._log.head(session_id) is not None for session_id in brought.names):
            self._streams.adopt(NAMES_STREAM, entries)
            return
        for session_id, name in sorted(brought.names.items()):
            is_free = self.find(name) is None and self._log.head(name) is None
            if is_free and self.name_of(session_id) is None and self._log.head(session_id) is not None:
                self._perform(ClaimName(name, session_id), None)

    def expect_head(self, stream_id: str, head: Head) -> None:
        """Refuse the names until the log contains this head, which was recorded of them and which the log lacks."""
        self._streams.expect_head(stream_id, head)

    def refuse_writes(self, reason: str | None) -> None:
        """Write nothing while the database lacks what was signed; None takes writes again."""
        self._streams.refuse_writes(reason)

    def observe_appends(self, observer: Callable[[Sequence[Append]], None]) -> None:
        """Tell `observer` of the entries that this process writes, once they are durable."""
        self._streams.observe_appends(observer)

    def find_behind(self) -> list[str]:
        """The stream of names, where the log lacks what this process has seen of it."""
        return self._streams.find_behind()

    def close(self) -> None:
        """Let go of threads; the log stays open."""
        self._streams.close()

    def _peek(self) -> CaseNames | None:
        return self._streams.peek(NAMES_STREAM)

    def _perform(self, message: NameMessage, by: Actor | None) -> RegisterAnswer[CaseNames]:
        return self._streams.perform(RegisterCommand(NAMES_STREAM, message, by or COMMAND_LINE))
