"""The operations as methods: what `help` and an editor show of them, and that both clients have the same."""

from __future__ import annotations

import inspect
import pydoc
from typing import Any, get_type_hints

import pytest

from cmbs.api.arguments import list_arguments
from cmbs.api.operation import Operation
from cmbs.api.operations import OPERATIONS
from cmbs.client import AsyncCase, AsyncClient, Case, Client
from cmbs.client import async_operations as awaiting
from cmbs.client import operations as blocking
from scripts.generate_client import main
from tests.support.subtests import for_each

SENT = [each for each in OPERATIONS if not each.is_followed]


def list_public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


def by_id(operation: Operation) -> str:
    return operation.operation_id


@pytest.mark.req("CLIENT-02")
@for_each("operation", SENT, ids=by_id)
def test_the_signature_of_a_method_is_what_its_operation_takes(operation: Operation) -> None:
    arguments = list_arguments(operation)
    for kind in (Client, AsyncClient):
        signature = inspect.signature(getattr(kind, operation.operation_id))
        _, *parameters = signature.parameters.values()
        assert [each.name for each in parameters] == [each.name for each in arguments]
        for parameter, argument in zip(parameters, arguments, strict=True):
            # What must be given can be passed by position, all else by name alone.
            if argument.is_required:
                assert parameter.kind is parameter.POSITIONAL_OR_KEYWORD
                assert parameter.default is parameter.empty
            else:
                assert (parameter.kind, parameter.default) == (parameter.KEYWORD_ONLY, None)
            assert isinstance(parameter.annotation, str)


@pytest.mark.req("CLIENT-02")
@for_each("operation", SENT, ids=by_id)
def test_help_for_a_method_says_what_its_operation_does_and_takes(operation: Operation) -> None:
    for kind in (Client, AsyncClient):
        method = getattr(kind, operation.operation_id)
        text = " ".join((inspect.getdoc(method) or "").split())
        assert text.startswith(f"{operation.summary}.")
        assert " ".join(operation.description.split()) in text
        for argument in list_arguments(operation):
            assert f"{argument.name}: {' '.join(argument.description.split())}" in text or not argument.description
        assert inspect.iscoroutinefunction(method) == (kind is AsyncClient)


@pytest.mark.req("CLIENT-02")
@for_each("operation", SENT, ids=by_id)
def test_the_types_of_a_method_can_be_read_where_it_is_defined(operation: Operation) -> None:
    for module, kind in ((blocking, Client), (awaiting, AsyncClient)):
        hints = get_type_hints(getattr(kind, operation.operation_id), vars(module))
        assert hints.pop("return") == operation.answer
        assert len(hints) == len(list_arguments(operation))


def test_help_reads_as_a_page_of_a_manual() -> None:
    page = pydoc.plain(pydoc.render_doc(Client.put_kit))
    assert "put_kit(self, text: 'str', *, media_type: 'str | None' = None) -> 'PutKitResponse'" in page
    assert "Put a kit on record." in page
    assert "text: The file as it is written." in page
    assert "media_type: `application/yaml`, which is the default, or `application/json`." in page


def test_both_clients_and_both_kinds_of_case_have_the_same_methods_with_the_same_arguments() -> None:
    pairs: list[tuple[type[Any], type[Any]]] = [(Client, AsyncClient), (Case, AsyncCase)]
    for one, other in pairs:
        assert list_public(one) == list_public(other)
        for name in list_public(one):
            method = getattr(one, name)
            if callable(method):
                names = list(inspect.signature(method).parameters)
                assert names == list(inspect.signature(getattr(other, name)).parameters), name


def test_what_is_generated_of_the_clients_is_current() -> None:
    assert main(["--check"]) == 0
