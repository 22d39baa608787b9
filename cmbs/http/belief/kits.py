"""Kits over HTTP: put on record by operators, listed, and given back as they were written."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import msgspec

from cmbs.api.operation import TextFile
from cmbs.belief.kernel.kit_stream import KitRecord, MediaType
from cmbs.belief.server import BeliefServer
from cmbs.http.exchange import Request, Response, cursor_of, prefers
from cmbs.http.spaces.reading import require_operator

_ENCODE = msgspec.json.Encoder().encode
_CREATED = 201
_VARY = ("vary", "accept")


class KitRoutes:
    """The handlers. A kit may take seconds to read, so all of them work in a thread."""

    def __init__(self, server: BeliefServer) -> None:
        self._kits = server.kits
        self._requests = server.requests

    async def put_kit(self, request: Request) -> Response:
        """Put a kit on record."""
        require_operator(request.actor)
        file: TextFile = request.message
        put = await asyncio.to_thread(self._kits.put, file.text, MediaType(file.media_type), request.actor)
        warnings = [each.to_dict() for each in put.warnings]
        content: dict[str, Any] = {"kit": _describe(put.record), "warnings": warnings}
        if put.repeated:
            content["replayed"] = True
        # Relative to the path of the request, so that it is right wherever the application is mounted.
        return Response(_CREATED, _ENCODE(content), [("location", f"kits/{quote(put.record.kit_id, safe='')}")])

    async def list_kits(self, request: Request) -> Response:
        """A page of kits."""
        query = request.query
        limit = self._requests.page_size(query.get("limit"))
        after = request.after

        def read() -> Response:
            shelves = self._kits.list_kits(after, limit + 1)
            more = cursor_of(shelves[limit - 1].kit_id) if len(shelves) > limit else None
            kits = [_describe(shelf.newest) for shelf in shelves[:limit]]
            return Response(200, _ENCODE({"kits": kits, "next_cursor": more}))

        return await asyncio.to_thread(read)

    async def get_kit(self, request: Request) -> Response:
        """A kit, as JSON or as it was written."""
        query = request.query
        kit_id = self._requests.text("kit_id", request.params["kit_id"])

        def read() -> Response:
            record = self._kits.find(kit_id, query.get("version"))
            document = self._kits.document(record)
            if prefers(request.header("accept"), MediaType.YAML, MediaType.JSON):
                return Response(200, document.encode(), [_VARY, ("content-type", record.media_type.value)])
            source = {"media_type": record.media_type, "text": document}
            contents = [_describe(each) for each in self._kits.shelf(kit_id).contents]
            return Response(200, _ENCODE({"kit": _describe(record), "source": source, "contents": contents}), [_VARY])

        return await asyncio.to_thread(read)


def _describe(record: KitRecord) -> dict[str, Any]:
    return {
        "kit_id": record.kit_id,
        "version": record.version,
        "content_hash": record.content_hash,
        "title": record.title,
        "media_type": record.media_type,
        "n_hypotheses": record.n_hypotheses,
        "n_probes": record.n_probes,
        "n_bytes": record.n_bytes,
        "ts": record.ts,
        "put_by": record.put_by.id,
        "audit_event_id": record.event_id,
    }
