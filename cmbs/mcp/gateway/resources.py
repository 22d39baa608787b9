"""Whose a resource is, behind a gateway in front of several servers: by what they listed, and by their templates."""

from __future__ import annotations

from typing import Any

from mcp import InvalidUriTemplate, UriTemplate

_MAX_RESOURCES = 10_000
# Of one server. Every template is tried for a resource that no server listed.
_MAX_TEMPLATES = 1_000


class Owners:
    """The server of each resource; nobody's where two servers claim it, or one could answer for the other."""

    def __init__(self) -> None:
        self._listed: dict[str, str | None] = {}
        self._templates: dict[str, dict[str, UriTemplate]] = {}

    def note(self, upstream: str, items: list[Any]) -> None:
        """Keep what a server listed: its resources."""
        for uri in _strings(items, "uri"):
            self._listed[uri] = upstream if self._listed.get(uri, upstream) == upstream else None
        while len(self._listed) > _MAX_RESOURCES:
            del self._listed[next(iter(self._listed))]

    def note_templates(self, upstream: str, items: list[Any]) -> None:
        """Keep what a server listed now: its templates. What is no template matches nothing."""
        templates = {}
        for text in _strings(items, "uriTemplate")[:_MAX_TEMPLATES]:
            try:
                templates[text] = UriTemplate.parse(text)
            except InvalidUriTemplate:
                continue
        self._templates[upstream] = templates

    def find(self, uri: str) -> str | None:
        """The server that listed this resource, or else the one whose templates it fits."""
        if uri in self._listed:
            return self._listed[uri]
        fitting = [
            upstream
            for upstream, templates in self._templates.items()
            if any(each.match(uri) is not None for each in templates.values())
        ]
        return fitting[0] if len(fitting) == 1 else None

    def find_template(self, text: str) -> str | None:
        """The only server that listed this template."""
        owners = [upstream for upstream, templates in self._templates.items() if text in templates]
        return owners[0] if len(owners) == 1 else None


def _strings(items: list[Any], name: str) -> list[str]:
    return [each[name] for each in items if isinstance(each, dict) and isinstance(each.get(name), str)]
