"""One table of codes and statuses: every code has its status, every error of ours its code."""

from collections.abc import Iterator
from typing import Any

import pytest

from cmbs import errors
from cmbs.api.errors import PRECONDITION_FAILED, STATUS_OF_CODE, TransportCode, TransportError, status_of
from cmbs.errors import BeliefServerError, ErrorCode, HeadMismatch
from cmbs.http.asgi import response_to
from cmbs.identity.tokens import new_key
from tests.support.error_model import check_error
from tests.support.in_process import Exchanged

# How to make one of each class that needs more than a sentence.
ARGUMENTS: dict[type[BeliefServerError], tuple[Any, ...]] = {
    errors.LimitExceeded: ("page_size", 10, 11),
    errors.Unauthenticated: (errors.KeyRefused.MISSING, "what is wrong"),
    errors.Forbidden: ("what is wrong", {"reason": "missing_scope"}),
    errors.InvalidHypothesisId: (["x"],),
    errors.RecordNotFound: ("proposal", "p1"),
    errors.HeadMismatch: ("seen", "is"),
    errors.LedgerCorrupt: ("stream", 3, "its hash is wrong", "event"),
}
# What the details of a failure of the transport always have.
DETAILS: dict[TransportCode, dict[str, Any]] = {
    TransportCode.METHOD_NOT_ALLOWED: {"allowed": ["GET", "HEAD"]},
    TransportCode.UNSUPPORTED_MEDIA_TYPE: {"content_type": None},
}


def classes(of: type[BeliefServerError] = BeliefServerError) -> Iterator[type[BeliefServerError]]:
    for kind in of.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from classes(kind)


def make_error(kind: type[BeliefServerError]) -> BeliefServerError:
    return kind(*ARGUMENTS.get(kind, ("what is wrong",)))


def answered(error: Exception) -> Exchanged:
    response = response_to(error)
    headers = {"content-type": "application/json", **dict(response.headers)}
    return Exchanged(response.status, headers, response.body)


@pytest.mark.req("BS-3.2-ERR-15")
def test_every_code_has_one_status() -> None:
    assert STATUS_OF_CODE.keys() == {*ErrorCode, *TransportCode}
    assert all(400 <= status < 600 for status in STATUS_OF_CODE.values())
    assert not {code.value for code in ErrorCode} & {code.value for code in TransportCode}


@pytest.mark.req("BS-3.2-ERR-15", "BS-3.2-ERR-16")
def test_every_error_is_answered_under_the_status_of_its_code(subtests: pytest.Subtests) -> None:
    for kind in list(classes()):
        with subtests.test(kind=kind):
            error = make_error(kind)
            status = PRECONDITION_FAILED if kind is HeadMismatch else STATUS_OF_CODE[kind.default_code]
            assert status_of(error) == status
            details = check_error(answered(error), status, kind.default_code.value)
            assert details == {**details, **error.details, "message": error.message}


@pytest.mark.req("BS-3.2-ERR-15")
def test_every_code_is_that_of_a_class() -> None:
    assert {kind.default_code for kind in classes()} == set(ErrorCode)


@pytest.mark.req("BS-3.2-ERR-15")
def test_every_failure_of_the_transport_is_answered_under_the_status_of_its_code(subtests: pytest.Subtests) -> None:
    for code in TransportCode:
        with subtests.test(code=code):
            sent = DETAILS.get(code, {})
            details = check_error(answered(TransportError(code, "what is wrong", sent)), STATUS_OF_CODE[code], code)
            assert details == details | sent


@pytest.mark.req("BS-3.2-ERR-14")
def test_whatever_else_is_raised_is_told_in_general_terms(subtests: pytest.Subtests) -> None:
    for error in [RuntimeError("secret"), KeyError("secret"), RecursionError("secret"), OSError(5, "secret")]:
        with subtests.test(error=error):
            answer = answered(error)
            check_error(answer, 500, "INTERNAL_ERROR")
            assert b"secret" not in answer.body


def test_only_one_code_says_when_to_try_again_and_one_how_to_send_a_key(subtests: pytest.Subtests) -> None:
    for header, code in [("retry-after", ErrorCode.STORE_UNAVAILABLE), ("www-authenticate", ErrorCode.UNAUTHENTICATED)]:
        with subtests.test(header=header, code=code):
            assert {kind.default_code for kind in classes() if header in answered(make_error(kind)).headers} == {code}


def test_an_error_never_repeats_a_key() -> None:
    key = new_key()
    answer = answered(errors.InvalidRequest(f"no session `{key.text}`", {"session_id": key.text}))
    assert key.text.encode() not in answer.body
    assert answer.body.count(f"cmbs_{key.key_id}_***".encode()) == 2
