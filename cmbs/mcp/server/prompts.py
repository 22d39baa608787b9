"""Prompts that teach the discipline: ask what tells hypotheses apart, record what was seen, do not look twice."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

_PLACE = re.compile(r"\{(\w+)\}")

INSTRUCTIONS = (
    "This server keeps what may still be true outside of your context. Open a case, ask `next_probes`, submit what you "
    "see with `observe`, and conclude when one survivor is left. What was ruled out stays ruled out: read it back with "
    "`read_belief` instead of remembering it. Actions are proposed, never just done. Every answer has `handles`, the "
    "ids for other calls. It may have `left_out` (how many items are missing from which list), `more` (the call that "
    "gives them), `next` (the call to make now) and `warning`. Answers have at most 4,000 tokens, unless `max_tokens` "
    "says more."
)


class Prompt(NamedTuple):
    """One prompt: its arguments by name, with what each is, and its text with their places."""

    name: str
    title: str
    description: str
    arguments: dict[str, str]
    text: str


PROMPTS = (
    Prompt(
        "investigate",
        "Investigate",
        "Find a cause by ruling out what it is not.",
        {"question": "what is to be found out", "kit_id": "the kit that knows hypotheses and probes"},
        "Find out: {question}\n\n"
        "1. Call `open_case` with the kit `{kit_id}`, and keep the session's id. If that is empty, call `find_kits`; "
        "if no kit is about this, list all that may be the case as `hypotheses`.\n"
        "2. Call `next_probes`. Take the first probe that you can answer, and look.\n"
        "3. Call `observe` with what you saw, as you saw it. If you saw nothing, say null; do not guess.\n"
        "4. Repeat from 2 until one survivor is left, or no probe tells the survivors apart.\n"
        "5. If an obligation is active, meet it before you conclude. Call `conclude` with the survivor.\n\n"
        "Never conclude something that is not among the survivors. Never ask a probe twice: `next_probes` lists what "
        "was asked. If an answer warns that nothing is left, call `contradiction`. Before an action that changes "
        "something, read the belief again.",
    ),
    Prompt(
        "probe",
        "Take one probe",
        "Look at one thing, and record what you saw.",
        {"session_id": "the session", "probe_id": "the probe"},
        "Take the probe `{probe_id}` in the session `{session_id}`, and nothing else.\n\n"
        "1. Call `next_probes` with the session: what the probe asks, and the answers that it can have.\n"
        "2. Look, and call `observe` with what you saw, as you saw it. If you saw nothing, say null; do not guess.\n"
        "3. Say what was ruled out, and what is left.",
    ),
    Prompt(
        "resume",
        "Resume an investigation",
        "Go on where an investigation stands, after your context was lost or cut.",
        {"session_id": "the session, if it is known"},
        "You were investigating, and may not remember it. Do not look at anything again yet.\n\n"
        "1. The session is `{session_id}`; if that is empty, call `find_sessions`.\n"
        "2. Call `read_belief`: these are the only hypotheses that are left. Everything else was ruled out on record; "
        "`why_ruled_out` says by what.\n"
        "3. Call `next_probes`: `asked` is what you have seen already, `probes` is what is worth asking next.\n"
        "4. Call `obligations`, then go on as before.",
    ),
    Prompt(
        "act",
        "Act on what is known",
        "Propose an action, and go by what is decided.",
        {"action": "what is to be done", "space_id": "the space of actions", "tool_id": "the tool that does it"},
        "To be done: {action}\n\n"
        "1. Call `read_belief`. If more than one survivor is left, rule out more first.\n"
        "2. Call `find_tools` in the space `{space_id}`, with the tool `{tool_id}` if that is known: what arguments it "
        "takes, and whether it asks. Without a space, call `find_spaces`.\n"
        "3. Call `propose_action` in the space, with the case.\n"
        "4. Where it waits, call `wait_for_action`, and do not propose it again. Where you are to run it, call "
        "`begin_action` first, run it only if that says so, and report it.\n"
        "5. Where it is denied, do what `message` says, or say that it cannot be done. Do not look for a way around it."
        "\n6. Where the outcome is unknown, read the state before anything else.",
    ),
)


def list_prompts() -> list[dict[str, Any]]:
    """The prompts as they go over the wire."""
    return [
        {
            "name": prompt.name,
            "title": prompt.title,
            "description": prompt.description,
            "arguments": [
                {"name": name, "description": text, "required": False} for name, text in prompt.arguments.items()
            ],
        }
        for prompt in PROMPTS
    ]


def fill_prompt(name: str, arguments: dict[str, str]) -> dict[str, Any] | None:
    """A prompt with its arguments in place; None where there is none of that name."""
    for prompt in PROMPTS:
        if prompt.name == name:
            # In one pass: what an argument says is text, and no place of another.
            filled = _PLACE.sub(lambda place: arguments.get(place.group(1), ""), prompt.text)
            message = {"role": "user", "content": {"type": "text", "text": filled}}
            return {"description": prompt.description, "messages": [message]}
    return None
