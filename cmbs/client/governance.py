"""The operations that govern a space: mode, tools, capabilities, policy and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cmbs.client.calls import Call, Json, PageCall, list_ids, omit_none, post_file, put_file, query_of, read, write
from cmbs.client.operations import listing, operation
from cmbs.client.results import policies, spaces

Document = dict[str, Any]
_SPACE = "/v1/spaces/{}"


class GovernanceOperations:
    """What a space allows, and what it holds to be true."""

    @listing
    def list_inbox(
        self,
        *,
        kind: str | None = None,
        space_id: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> PageCall[policies.InboxPage, policies.Waiting]:
        """What waits for a person, across spaces, of what this key could settle."""
        call = read("/v1/inbox", answer=policies.InboxPage, kind=kind, space_id=space_id, cursor=cursor, limit=limit)
        return PageCall(call, lambda page: page.waiting, lambda page: page.next_cursor)

    @operation
    def set_space_mode(self, space_id: str, mode: str) -> Call[spaces.Step]:
        """Enforce or observe. For operators."""
        return write(f"{_SPACE}/mode", space_id, answer=spaces.Step, body={"mode": mode})

    @operation
    def set_space_governance(self, space_id: str, operators_needed: int) -> Call[spaces.Step]:
        """Set how many operators a change of policy takes. For operators."""
        body = {"operators_needed": operators_needed}
        return write(f"{_SPACE}/governance", space_id, answer=spaces.Step, body=body)

    @operation
    def register_tool(
        self,
        space_id: str,
        *,
        tool_id: str,
        kind: str,
        args_schema: Mapping[str, Json] | bool,
        description: str | None = None,
        result_schema: Mapping[str, Json] | bool | None = None,
        target: Mapping[str, Json] | None = None,
        timeout_ms: int | None = None,
        max_result_bytes: int | None = None,
        writes: bool | None = None,
        idempotent: bool | None = None,
        facts: Mapping[str, str] | None = None,
        caller_facts: bool | None = None,
    ) -> Call[spaces.Step]:
        """Register a tool, or a new version of one. For operators."""
        body = omit_none(
            tool_id=tool_id,
            kind=kind,
            args_schema=args_schema,
            description=description,
            result_schema=result_schema,
            target=target,
            timeout_ms=timeout_ms,
            max_result_bytes=max_result_bytes,
            writes=writes,
            idempotent=idempotent,
            facts=facts,
            caller_facts=caller_facts,
        )
        return write(f"{_SPACE}/tools", space_id, answer=spaces.Step, body=body)

    @operation
    def retire_tool(self, space_id: str, tool_id: str) -> Call[spaces.Step]:
        """Retire a tool: it can no longer be called. For operators."""
        return write(f"{_SPACE}/tools/{{}}/retire", space_id, tool_id, answer=spaces.Step, body={})

    @listing
    def list_tools(
        self, space_id: str, *, cursor: str | None = None, limit: int | None = None
    ) -> PageCall[spaces.ToolsPage, spaces.Tool]:
        """Tools, sorted by id."""
        call = read(f"{_SPACE}/tools", space_id, answer=spaces.ToolsPage, cursor=cursor, limit=limit)
        return PageCall(call, lambda page: page.tools, lambda page: page.next_cursor)

    @operation
    def get_tool(self, space_id: str, tool_id: str) -> Call[spaces.Tool]:
        """A registered tool."""
        return read(f"{_SPACE}/tools/{{}}", space_id, tool_id, answer=spaces.Tool)

    @operation
    def issue_capability(
        self,
        space_id: str,
        *,
        token_id: str,
        agent_id: str,
        tool_ids: Sequence[str],
        capabilities: Sequence[str] | None = None,
        scopes: Sequence[Mapping[str, Json]] | None = None,
        budget: Mapping[str, Json] | None = None,
        expires_at: str | None = None,
        parent_id: str | None = None,
    ) -> Call[spaces.Step]:
        """Issue a token for tools. By an operator, or by the holder of a wider token."""
        body = omit_none(
            token_id=token_id,
            agent_id=agent_id,
            tool_ids=list_ids("tool_ids", tool_ids),
            capabilities=capabilities,
            scopes=scopes,
            budget=budget,
            expires_at=expires_at,
            parent_id=parent_id,
        )
        return write(f"{_SPACE}/capabilities", space_id, answer=spaces.Step, body=body)

    @operation
    def revoke_capability(self, space_id: str, token_id: str, *, reason: str | None = None) -> Call[spaces.Step]:
        """Revoke a token, and every token issued under it."""
        return write(
            f"{_SPACE}/capabilities/{{}}/revoke", space_id, token_id, answer=spaces.Step, body=omit_none(reason=reason)
        )

    @listing
    def list_capabilities(
        self, space_id: str, *, cursor: str | None = None, limit: int | None = None
    ) -> PageCall[spaces.CapabilitiesPage, spaces.Capability]:
        """Capability tokens, sorted by id."""
        call = read(f"{_SPACE}/capabilities", space_id, answer=spaces.CapabilitiesPage, cursor=cursor, limit=limit)
        return PageCall(call, lambda page: page.capabilities, lambda page: page.next_cursor)

    @operation
    def get_capability(self, space_id: str, token_id: str) -> Call[spaces.Capability]:
        """A capability token, and how much of its budget is spent."""
        return read(f"{_SPACE}/capabilities/{{}}", space_id, token_id, answer=spaces.Capability)

    @operation
    def put_memory(
        self,
        space_id: str,
        *,
        entry_id: str,
        kind: str,
        claim: Json,
        evidence: Mapping[str, Json] | None = None,
        conflict_state: str | None = None,
        ttl_ms: int | None = None,
        review_at: str | None = None,
    ) -> Call[spaces.Step]:
        """Put a claim into memory."""
        optional = omit_none(evidence=evidence, conflict_state=conflict_state, ttl_ms=ttl_ms, review_at=review_at)
        body = {"entry_id": entry_id, "kind": kind, "claim": claim, **optional}
        return write(f"{_SPACE}/memory", space_id, answer=spaces.Step, body=body)

    @operation
    def promote_memory(
        self, space_id: str, entry_id: str, *, kind: str, evidence: Mapping[str, Json]
    ) -> Call[spaces.Step]:
        """Promote a claim, on new evidence."""
        body = {"kind": kind, "evidence": evidence}
        return write(f"{_SPACE}/memory/{{}}/promote", space_id, entry_id, answer=spaces.Step, body=body)

    @operation
    def dispute_memory(
        self, space_id: str, entry_id: str, *, conflict_state: str, because: Sequence[str] | None = None
    ) -> Call[spaces.Step]:
        """Say whether other claims contradict this one."""
        body = omit_none(conflict_state=conflict_state, because=because)
        return write(f"{_SPACE}/memory/{{}}/dispute", space_id, entry_id, answer=spaces.Step, body=body)

    @listing
    def list_memory(
        self, space_id: str, *, cursor: str | None = None, limit: int | None = None
    ) -> PageCall[policies.MemoryPage, policies.MemoryEntry]:
        """Claims in memory, the oldest first."""
        call = read(f"{_SPACE}/memory", space_id, answer=policies.MemoryPage, cursor=cursor, limit=limit)
        return PageCall(call, lambda page: page.memory, lambda page: page.next_cursor)

    @operation
    def get_memory(self, space_id: str, entry_id: str) -> Call[policies.MemoryEntry]:
        """A claim in memory."""
        return read(f"{_SPACE}/memory/{{}}", space_id, entry_id, answer=policies.MemoryEntry)

    @listing
    def read_policy(
        self, space_id: str, *, cursor: str | None = None, limit: int | None = None
    ) -> PageCall[policies.PolicyPage, tuple[str, str]]:
        """The policy by key; the first page has the file that it was written as. For operators."""
        call = read(f"{_SPACE}/policy", space_id, answer=policies.PolicyPage, cursor=cursor, limit=limit)
        return PageCall(call, lambda page: list(page.pairs.items()), lambda page: page.next_cursor)

    @operation
    def put_policy(
        self,
        space_id: str,
        text: str,
        *,
        media_type: str = "application/yaml",
        base_policy_hash: str | None = None,
        reason: str | None = None,
    ) -> Call[policies.PolicyPut]:
        """Make a file the policy, in YAML or JSON. For operators."""
        call = put_file(f"{_SPACE}/policy", space_id, answer=policies.PolicyPut, text=text, media_type=media_type)
        return call.with_query(**omit_none(base_policy_hash=base_policy_hash, reason=reason))

    @operation
    def check_policy(
        self, space_id: str, text: str, *, media_type: str = "application/yaml"
    ) -> Call[policies.PolicyCheck]:
        """Look a policy file through. Nothing is recorded. For operators."""
        return post_file(
            f"{_SPACE}/policy/check", space_id, answer=policies.PolicyCheck, text=text, media_type=media_type
        )

    @operation
    def policy_impact(
        self, space_id: str, text: str, *, media_type: str = "application/yaml", limit: int | None = None
    ) -> Call[Document]:
        """Try a policy file on the past of a space. Nothing is recorded. For operators."""
        call = post_file(f"{_SPACE}/policy/impact", space_id, answer=Document, text=text, media_type=media_type)
        return call.with_query(**query_of(limit=limit))

    @operation
    def propose_policy_change(
        self,
        space_id: str,
        *,
        change_id: str,
        base_policy_hash: str,
        set_: Mapping[str, str] | None = None,
        unset: Sequence[str] | None = None,
        reason: str | None = None,
    ) -> Call[spaces.Step]:
        """Propose a change of policy, to be authorised by another operator where two are needed."""
        body = omit_none(change_id=change_id, base_policy_hash=base_policy_hash, set_=set_, unset=unset, reason=reason)
        return write(f"{_SPACE}/policy/changes", space_id, answer=spaces.Step, body=body)

    @operation
    def authorise_policy_change(self, space_id: str, change_id: str, *, reason: str | None = None) -> Call[spaces.Step]:
        """Authorise a change of policy. By an operator other than its proposer."""
        return write(
            f"{_SPACE}/policy/changes/{{}}/authorise",
            space_id,
            change_id,
            answer=spaces.Step,
            body=omit_none(reason=reason),
        )

    @operation
    def reject_policy_change(self, space_id: str, change_id: str, *, reason: str | None = None) -> Call[spaces.Step]:
        """Reject a change of policy."""
        return write(
            f"{_SPACE}/policy/changes/{{}}/reject",
            space_id,
            change_id,
            answer=spaces.Step,
            body=omit_none(reason=reason),
        )

    @listing
    def list_policy_changes(
        self, space_id: str, *, cursor: str | None = None, limit: int | None = None
    ) -> PageCall[policies.PolicyChangesPage, policies.PolicyChange]:
        """Changes of policy, the oldest first. For operators."""
        call = read(f"{_SPACE}/policy/changes", space_id, answer=policies.PolicyChangesPage, cursor=cursor, limit=limit)
        return PageCall(call, lambda page: page.changes, lambda page: page.next_cursor)

    @operation
    def get_policy_change(self, space_id: str, change_id: str) -> Call[policies.PolicyChange]:
        """A change of policy. For operators."""
        return read(f"{_SPACE}/policy/changes/{{}}", space_id, change_id, answer=policies.PolicyChange)
