"""The operations on kits."""

from __future__ import annotations

from cmbs.api import observations as schemas
from cmbs.api.operation import Operation, Parameter, TextFile
from cmbs.api.parameters import CURSOR, LIMIT
from cmbs.errors import ErrorCode
from cmbs.identity.kernel.scopes import Reach, Scope

_VERSION = Parameter(
    "version", "The hash of a content, or a version; by default the content that was put last.", {"type": "string"}, "1"
)
_ERRORS = (ErrorCode.STORE_UNAVAILABLE, ErrorCode.LEDGER_CORRUPT)

KIT_OPERATIONS = (
    Operation(
        "POST",
        "/v1/kits",
        "put_kit",
        "Put a kit on record",
        "PUT_KIT. The document as it was written, named by its hash; the same document again changes nothing. What is"
        " wrong with it is told with lines and columns. For operators.",
        schemas.PutKitResponse,
        TextFile,
        201,
        errors=(*_ERRORS, ErrorCode.LIMIT_EXCEEDED),
        scope=Scope.SPACES_OPERATE,
        reach=Reach.ALL,
        recorded=False,
        file_schema="KitFile",
    ),
    Operation(
        "GET",
        "/v1/kits",
        "list_kits",
        "List kits",
        "By id, each in the content that was put last.",
        schemas.KitsPage,
        query=(CURSOR, LIMIT),
        errors=(*_ERRORS, ErrorCode.LIMIT_EXCEEDED),
        reach=Reach.ANY,
    ),
    Operation(
        "GET",
        "/v1/kits/{kit_id}",
        "get_kit",
        "A kit, and the document that it was written as",
        "One content and the list of all; the document alone, as it was written, where `Accept` asks for"
        " `application/yaml`.",
        schemas.KitResponse,
        query=(_VERSION,),
        errors=(*_ERRORS, ErrorCode.RECORD_NOT_FOUND, ErrorCode.LIMIT_EXCEEDED),
        reach=Reach.ANY,
        file=True,
    ),
)
