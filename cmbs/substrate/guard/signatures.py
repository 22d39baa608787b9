"""The signature of a function as the schema of a tool's args, and calls of it as JSON and back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, get_type_hints

import msgspec

from cmbs.documents.json_schemas import describe_types
from cmbs.errors import InvalidRequest
from cmbs.ledger import canonical

_POSITIONAL_ONLY = inspect.Parameter.POSITIONAL_ONLY
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Signature:
    """Which arguments a function takes, by name. A parameter without an annotation takes any JSON."""

    def __init__(self, name: str, signature: inspect.Signature, types: Mapping[str, Any]) -> None:
        self._name = name
        self._signature = signature
        self._result: Any = types.get("return", Any)
        fields = [
            (parameter.name, types.get(parameter.name, Any))
            if parameter.default is inspect.Parameter.empty
            else (parameter.name, types.get(parameter.name, Any), msgspec.field(default_factory=lambda: None))
            for parameter in signature.parameters.values()
        ]
        self._fields = msgspec.defstruct("Args", fields, kw_only=True, forbid_unknown_fields=True)
        # Here, where there is one thread: msgspec crashes where several meet a type for the first time.
        for kind in (self._fields, self._result):
            with suppress(TypeError):
                msgspec.json.Decoder(kind)

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Signature:
        """The signature of a function; InvalidRequest where its arguments have no names, or types that are not JSON."""
        signature = inspect.signature(function)
        name = getattr(function, "__qualname__", repr(function))
        for parameter in signature.parameters.values():
            if parameter.kind in _VARIABLE or parameter.kind is _POSITIONAL_ONLY:
                raise InvalidRequest(f"`{name}` cannot be a tool: `{parameter.name}` cannot be given by name")
        try:
            return cls(name, signature, get_type_hints(function, include_extras=True))
        except (NameError, TypeError) as exc:
            raise InvalidRequest(f"`{name}` cannot be a tool: {exc}") from exc

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the args; InvalidRequest where a type has none."""
        try:
            (_,), parts = describe_types([self._fields], ref_template="#/$defs/{name}")
        except TypeError as exc:
            raise InvalidRequest(f"`{self._name}` needs an `args_schema`: {exc}") from exc
        whole: dict[str, Any] = parts.pop("Args")
        whole.pop("title", None)
        return whole | ({"$defs": parts} if parts else {})

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """A call as canonical JSON; TypeError as the function itself would raise it.

        Arguments that were not given are in it too: what is approved should not change with a default.
        """
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return canonical.encode(msgspec.to_builtins(dict(bound.arguments)))

    def decode(self, args: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the function declares them; those that were left out keep their defaults."""
        made = msgspec.convert(args, self._fields)
        return {name: getattr(made, name) for name in args}

    def result(self, value: Any) -> Any:
        """A recorded result as the function declares it; as plain data where it declares nothing, or something else."""
        try:
            return msgspec.convert(value, self._result)
        except (msgspec.ValidationError, TypeError):
            return value
