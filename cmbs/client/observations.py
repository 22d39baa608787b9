"""The operations on observations and kits."""

from __future__ import annotations

from collections.abc import Mapping

from cmbs.client.calls import Call, Json, Moment, PageCall, omit_none, post_file, read, write
from cmbs.client.operations import listing, operation
from cmbs.client.results import observations as results

_SESSION = "/v1/sessions/{}"


class ObservationOperations:
    """What was seen, what is worth asking, and the kits that say what an answer rules out."""

    @operation
    def observe(
        self,
        session_id: str,
        probe_id: str,
        response: Json,
        *,
        source_id: str | None = None,
        observation_id: str | None = None,
        justification: Mapping[str, Json] | None = None,
        seen_at: str | None = None,
    ) -> Call[results.Observation]:
        """Tell what was seen: an outcome, a number, a list of samples, or None for no data.

        The session's kit works out what that rules out. The same answer of a source again is answered with what was
        seen then; a new look at the same probe needs an `observation_id` of its own.
        """
        optional = omit_none(
            source_id=source_id, observation_id=observation_id, justification=justification, seen_at=seen_at
        )
        body = {"probe_id": probe_id, "response": response, **optional}
        return write(f"{_SESSION}/observations", session_id, answer=results.Observation, body=body, keyed=False)

    @listing
    def list_probes(
        self, session_id: str, *, at: Moment | None = None, cursor: str | None = None, limit: int | None = None
    ) -> PageCall[results.ProbesPage, results.Probe]:
        """What is worth asking next, the best first, and what was asked already."""
        call = read(f"{_SESSION}/probes", session_id, answer=results.ProbesPage, at=at, cursor=cursor, limit=limit)
        return PageCall(call, lambda page: page.probes, lambda page: page.next_cursor)

    @operation
    def put_kit(self, text: str, *, media_type: str = "application/yaml") -> Call[results.KitPut]:
        """Put a kit on record, as it is written. For operators."""
        return post_file("/v1/kits", answer=results.KitPut, text=text, media_type=media_type)

    @listing
    def list_kits(
        self, *, cursor: str | None = None, limit: int | None = None
    ) -> PageCall[results.KitsPage, results.KitContent]:
        """Kits by id, each in the content that was put last."""
        call = read("/v1/kits", answer=results.KitsPage, cursor=cursor, limit=limit)
        return PageCall(call, lambda page: page.kits, lambda page: page.next_cursor)

    @operation
    def get_kit(self, kit_id: str, *, version: str | None = None) -> Call[results.Kit]:
        """A kit, the document that it was written as, and every content of it."""
        return read("/v1/kits/{}", kit_id, answer=results.Kit, version=version)
