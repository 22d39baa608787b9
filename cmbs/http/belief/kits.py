"""Kits over HTTP: put on record by operators, listed, and given back as they were written."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from cmbs.api import observations as schemas
from cmbs.api.answers import DocumentFinding
from cmbs.api.operation import TextFile
from cmbs.belief.kernel.kit_stream import KitRecord, MediaType
from cmbs.belief.server import BeliefServer
from cmbs.http.exchange import Request, Response, build_answer, cursor_of, encode_answer, prefers
from cmbs.http.spaces.reading import require_operator

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
        warnings = [DocumentFinding(**each.to_dict()) for each in put.warnings]
        content = schemas.PutKitResponse(_describe(put.record), warnings, replayed=put.repeated)
        # Relative to the path of the request, so that it is right wherever the application is mounted.
        return Response(_CREATED, encode_answer(content), [("location", f"kits/{quote(put.record.kit_id, safe='')}")])

    async def list_kits(self, request: Request) -> Response:
        """A page of kits."""
        query = request.query
        limit = self._requests.page_size(query.get("limit"))
        after = request.after

        def read() -> Response:
            shelves = self._kits.list_kits(after, limit + 1)
            more = cursor_of(shelves[limit - 1].kit_id) if len(shelves) > limit else None
            kits = [_describe(shelf.newest) for shelf in shelves[:limit]]
            return Response(200, encode_answer(schemas.KitsPage(kits, more)))

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
            source = schemas.KitSource(record.media_type, document)
            contents = [_describe(each) for each in self._kits.shelf(kit_id).contents]
            return Response(200, encode_answer(schemas.KitResponse(_describe(record), source, contents)), [_VARY])

        return await asyncio.to_thread(read)


def _describe(record: KitRecord) -> schemas.KitContent:
    return build_answer(schemas.KitContent, record, put_by=record.put_by.id, audit_event_id=record.event_id)
