"""The server that the MCP conformance suite asks for, on the SDK: `python -m tests.support.mcp_conformance PORT`.

The suite names the tools, resources and prompts, and what each of them does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
import uvicorn
from mcp import MCPError
from mcp.server import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ToolsListChanged
from mcp.shared.message import ServerMessageMetadata

Wire = dict[str, Any]

# One red pixel, and a sound of no length.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
IMAGE: Wire = {"type": "image", "data": PNG, "mimeType": "image/png"}
WATCHED = "test://watched-resource"

ADDRESS = {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}
WITH_DEFINITIONS = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": ADDRESS},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
USER = {
    "type": "object",
    "properties": {"username": {"type": "string"}, "email": {"type": "string"}},
    "required": ["username", "email"],
}
WITH_DEFAULTS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}
OPTIONS = ["option1", "option2", "option3"]
TITLED = [{"const": f"value{number}", "title": f"Option {number}"} for number in (1, 2, 3)]
WITH_CHOICES = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": TITLED},
        "legacyEnum": {"type": "string", "enum": OPTIONS, "enumNames": ["One", "Two", "Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
    },
}


def text(said: str) -> Wire:
    return {"type": "text", "text": said}


def embed(uri: str, kind: str, said: str) -> Wire:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": said}}


def answering(*content: Wire) -> Callable[[Any, Wire], Awaitable[list[Wire]]]:
    async def answer(ctx: Any, args: Wire) -> list[Wire]:
        return list(content)

    return answer


async def log(ctx: Any, args: Wire) -> list[Wire]:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        params = types.LoggingMessageNotificationParams(level="info", data=said)
        await ctx.session.send_notification(types.LoggingMessageNotification(params=params), ctx.request_id)
    return [text("logged")]


async def progress(ctx: Any, args: Wire) -> list[Wire]:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100, f"Completed step {done} of 100")
    return [text("done")]


async def fail(ctx: Any, args: Wire) -> list[Wire]:
    raise RuntimeError("This tool intentionally returns an error for testing")


async def sample(ctx: Any, args: Wire) -> list[Wire]:
    message = types.SamplingMessage(role="user", content=types.TextContent(text=args["prompt"]))
    params = types.CreateMessageRequestParams(messages=[message], max_tokens=100)
    request = types.CreateMessageRequest(params=params)
    metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
    answer = await ctx.session.send_request(request, types.CreateMessageResult, metadata=metadata)
    return [text(f"LLM response: {answer.content.text}")]


def eliciting(schema: Wire) -> Callable[[Any, Wire], Awaitable[list[Wire]]]:
    async def elicit(ctx: Any, args: Wire) -> list[Wire]:
        answer = await ctx.session.elicit_form(args.get("message", "Choose"), schema, ctx.request_id)
        return [text(f"User response: action={answer.action}, content={json.dumps(answer.content)}")]

    return elicit


MIXED = embed("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
EMBEDDED = embed("test://embedded-resource", "text/plain", "This is an embedded resource content.")
TOOLS: dict[str, tuple[Wire, Callable[[Any, Wire], Awaitable[list[Wire]]]]] = {
    "test_simple_text": ({}, answering(text("This is a simple text response for testing."))),
    "test_image_content": ({}, answering(IMAGE)),
    "test_audio_content": ({}, answering({"type": "audio", "data": WAV, "mimeType": "audio/wav"})),
    "test_embedded_resource": ({}, answering(EMBEDDED)),
    "test_multiple_content_types": ({}, answering(text("Multiple content types test:"), IMAGE, MIXED)),
    "test_tool_with_logging": ({}, log),
    "test_tool_with_progress": ({}, progress),
    "test_error_handling": ({}, fail),
    "test_sampling": ({"properties": {"prompt": {"type": "string"}}, "required": ["prompt"]}, sample),
    "test_elicitation": ({"properties": {"message": {"type": "string"}}, "required": ["message"]}, eliciting(USER)),
    "test_elicitation_sep1034_defaults": ({}, eliciting(WITH_DEFAULTS)),
    "test_elicitation_sep1330_enums": ({}, eliciting(WITH_CHOICES)),
    "json_schema_2020_12_tool": (WITH_DEFINITIONS, answering(text("fits"))),
}
RESOURCES: dict[str, Wire] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    WATCHED: {"mimeType": "text/plain", "text": "Watched resource content"},
}
TEMPLATE = "test://template/{id}/data"
PROMPTS: dict[str, tuple[list[str], Callable[[Wire], list[Wire]]]] = {
    "test_simple_prompt": ([], lambda _: [text("This is a simple prompt for testing.")]),
    "test_prompt_with_arguments": (
        ["arg1", "arg2"],
        lambda args: [text(f"Prompt with arguments: arg1='{args['arg1']}', arg2='{args['arg2']}'")],
    ),
    "test_prompt_with_embedded_resource": (
        ["resourceUri"],
        lambda args: [
            embed(args["resourceUri"], "text/plain", "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
    ),
    "test_prompt_with_image": ([], lambda _: [IMAGE, text("Please analyze the image above.")]),
}


async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    reads = {"readOnlyHint": True}
    tools = [
        {
            "name": name,
            "description": f"Does {name}.",
            "inputSchema": {"type": "object", **schema},
            "annotations": reads,
        }
        for name, (schema, _) in TOOLS.items()
    ]
    return types.ListToolsResult.model_validate({"tools": tools}, by_name=False)


async def call_tool(ctx: Any, params: Any) -> types.CallToolResult:
    if params.name not in TOOLS:
        raise MCPError(code=types.INVALID_PARAMS, message=f"Unknown tool: {params.name}")
    try:
        content = await TOOLS[params.name][1](ctx, params.arguments or {})
    except RuntimeError as exc:
        return types.CallToolResult.model_validate({"content": [text(str(exc))], "isError": True}, by_name=False)
    return types.CallToolResult.model_validate({"content": content}, by_name=False)


async def list_resources(ctx: Any, params: Any) -> types.ListResourcesResult:
    resources = [
        {"uri": uri, "name": uri, "description": f"Holds {uri}.", "mimeType": content["mimeType"]}
        for uri, content in RESOURCES.items()
    ]
    return types.ListResourcesResult.model_validate({"resources": resources}, by_name=False)


async def list_templates(ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
    templates = [{"uriTemplate": TEMPLATE, "name": "data", "description": "Data.", "mimeType": "application/json"}]
    return types.ListResourceTemplatesResult.model_validate({"resourceTemplates": templates}, by_name=False)


async def read_resource(ctx: Any, params: Any) -> types.ReadResourceResult:
    uri = str(params.uri)
    content = RESOURCES.get(uri)
    if content is None:
        begin, end = TEMPLATE.split("{id}")
        if not (uri.startswith(begin) and uri.endswith(end)):
            raise MCPError(code=-32002, message="Resource not found")
        held = {"id": uri[len(begin) : -len(end)], "templateTest": True, "data": f"Data for {uri}"}
        content = {"mimeType": "application/json", "text": json.dumps(held)}
    return types.ReadResourceResult.model_validate({"contents": [{"uri": uri, **content}]}, by_name=False)


async def take(ctx: Any, params: Any) -> types.EmptyResult:
    """Take a level, or a subscription; one who subscribes is told of a change at once."""
    if ctx.method == "resources/subscribe":
        await ctx.session.send_resource_updated(params.uri)
    return types.EmptyResult()


async def complete(ctx: Any, params: Any) -> types.CompleteResult:
    values = [each for each in ("paris", "park", "party") if each.startswith(params.argument.value)]
    return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))


async def list_prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
    prompts = [
        {
            "name": name,
            "description": f"Says {name}.",
            "arguments": [{"name": each, "description": each, "required": True} for each in arguments],
        }
        for name, (arguments, _) in PROMPTS.items()
    ]
    return types.ListPromptsResult.model_validate({"prompts": prompts}, by_name=False)


async def get_prompt(ctx: Any, params: Any) -> types.GetPromptResult:
    content = PROMPTS[params.name][1](params.arguments or {})
    messages = [{"role": "user", "content": each} for each in content]
    return types.GetPromptResult.model_validate({"messages": messages}, by_name=False)


BUS = InMemorySubscriptionBus()


async def announce(uri: str | None = None) -> None:
    """Have those who listen know that a resource changed, or the tools."""
    await BUS.publish(ToolsListChanged() if uri is None else ResourceUpdated(uri))


def build() -> Server[Any]:
    server: Server[Any] = Server(
        "conformance",
        version="1",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=take,
        on_unsubscribe_resource=take,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
        on_subscriptions_listen=ListenHandler(BUS),
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, take)
    return server


if __name__ == "__main__":
    uvicorn.run(build().streamable_http_app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
