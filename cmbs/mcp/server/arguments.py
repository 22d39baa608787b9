"""The arguments of tools, prompts and resources: one name for one thing, and one type for each name."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cmbs.mcp.asking import MAX_WAIT_SECONDS
from cmbs.mcp.server.answers import LARGEST_TOKENS, MAX_LISTED, MAX_TOKENS

_MAX_FILTER = 256

SessionId = Annotated[str, Meta(description="Of `find_sessions`.", min_length=1)]
HypothesisId = Annotated[str, Meta(description="Of `read_belief`.", min_length=1)]
Hypotheses = Annotated[list[str], Meta(description="Ids of hypotheses.", min_length=1)]
ProbeId = Annotated[str, Meta(description="Of `next_probes`.", min_length=1)]
KitId = Annotated[str, Meta(description="Of `find_kits`.", min_length=1)]
ObligationId = Annotated[str, Meta(description="Of `obligations`.", min_length=1)]
ObservationId = Annotated[str, Meta(description="A name for this observation; the same again changes nothing.")]
SourceId = Annotated[str, Meta(description="Where it was seen; by default you.", min_length=1)]
EventId = Annotated[str, Meta(description="Only what this event ruled out.", min_length=1)]
SpaceId = Annotated[str, Meta(description="Of `find_spaces`.", min_length=1)]
ToolId = Annotated[str, Meta(description="Of `find_tools`.", min_length=1)]
CaseId = Annotated[str, Meta(description="The case: its id or its name.", min_length=1)]
CallId = Annotated[str, Meta(description="Of `propose_action`.", min_length=1)]
Nonce = Annotated[str, Meta(description="Of `begin_action`.", min_length=1)]
CallArguments = Annotated[dict[str, Any], Meta(description="Arguments of the tool.")]
Because = Annotated[str, Meta(description="Why, for people.")]
Text = Annotated[str, Meta(description="Only those with this text.", max_length=_MAX_FILTER)]
Limit = Annotated[int, Meta(ge=1, le=MAX_LISTED)]
Cursor = Annotated[str, Meta(description="Of `more`.")]
Tokens = Annotated[int, Meta(ge=MAX_TOKENS, le=LARGEST_TOKENS)]
Seconds = Annotated[int, Meta(ge=0, le=MAX_WAIT_SECONDS)]


class Args(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of a tool: unknown names are refused."""


class ListArgs(Args, kw_only=True):
    """Arguments of a tool that lists what is short."""

    limit: Limit = 10
    cursor: Cursor | None = None


class PageArgs(ListArgs, kw_only=True):
    """Arguments of a tool that lists what may be long."""

    max_tokens: Tokens = MAX_TOKENS


class NoArgs(msgspec.Struct):
    """Nothing needs to be said."""
