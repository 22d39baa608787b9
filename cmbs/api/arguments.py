"""The arguments of an operation, as clients and commands take them: from its path, its query and its body."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import inspect

from cmbs.api.operation import Operation, Parameter, TextFile
from cmbs.api.parameters import PATH_PARAMETERS

_MOMENTS = ("at", "from", "to", "after", "without")
# Names that would hide what Python has under them.
_RESERVED = {"from", "set"}
_PLAIN_TYPES = {
    inspect.StrType: "str",
    inspect.EnumType: "str",
    inspect.LiteralType: "str",
    inspect.IntType: "int",
    inspect.BoolType: "bool",
    inspect.FloatType: "float",
}


class Argument(NamedTuple):
    """One argument: its name in Python, its type as text, whether it must be given, and what it is."""

    name: str
    kind: str
    is_required: bool
    description: str


def list_arguments(operation: Operation) -> list[Argument]:
    """The arguments of an operation: of its path, its query and its body, those first that must be given."""
    found = [Argument(name, "str", True, PATH_PARAMETERS[name]) for name in operation.path_names]
    if operation.body is TextFile:
        found.append(Argument("text", "str", True, "The file as it is written."))
        found.append(
            Argument("media_type", "str", False, "`application/yaml`, which is the default, or `application/json`.")
        )
    elif operation.body is not None:
        described = inspect.type_info(operation.body)
        fields = described.fields if isinstance(described, inspect.StructType) else ()
        found += [_of_field(each) for each in fields if each.encode_name not in operation.path_names]
    found += map(_of_parameter, operation.query)
    found = [each._replace(is_required=False) if each.name in operation.made_up else each for each in found]
    return sorted(found, key=lambda each: not each.is_required)


def _of_field(field: inspect.Field) -> Argument:
    kind, description = _read_type(field.type)
    kind = {"without": "Sequence[Moment]", "at": "Moment"}.get(field.name, kind)
    return Argument(_python_name(field.encode_name), kind, field.required, description)


def _of_parameter(parameter: Parameter) -> Argument:
    schema = parameter.schema
    kind = {"integer": "int", "array": "Iterable[str]"}.get(schema.get("type", ""), "str")
    if schema.get("enum") == ["true", "false"]:
        kind = "bool"
    if kind == "str" and parameter.name in _MOMENTS:
        kind = "Moment"
    words = schema.get("enum", [])
    among = f" One of {', '.join(f'`{word}`' for word in words)}." if words and kind == "str" else ""
    return Argument(_python_name(parameter.name), kind, parameter.required, parameter.description + among)


def _python_name(name: str) -> str:
    return f"{name}_" if name in _RESERVED else name


def _read_type(kind: inspect.Type) -> tuple[str, str]:
    """The type of an argument as text, and its description."""
    description = ""
    while isinstance(kind, inspect.Metadata):
        description = description or (kind.extra_json_schema or {}).get("description", "")
        kind = kind.type
    return _write_type(kind), description


def _write_type(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata(type=inner):
            return _write_type(inner)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            each = _write_type(item)
            return f"Iterable[{each}]" if each == "str" else f"Sequence[{each}]"
        case inspect.DictType(value_type=value):
            return f"Mapping[str, {_write_type(value)}]"
        case inspect.StructType() | inspect.DataclassType():
            return "Mapping[str, Json]"
        case inspect.UnionType(types=types):
            names = [_write_type(one) for one in types if not isinstance(one, inspect.NoneType)]
            return " | ".join(dict.fromkeys(names)) or "Json"
        case _:
            return _PLAIN_TYPES.get(type(kind), "Json")
