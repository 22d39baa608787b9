"""Heads that were read before: they say what they say when they are read, and nothing secret is kept."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.errors import InvalidRequest
from cmbs.http import headers as heads
from cmbs.http.headers import Headers, headers_of
from cmbs.identity.tokens import new_key

Pairs = list[tuple[bytes, bytes]]

ASKED = ("host", "content-type", "prefer", "if-match", "idempotency-key", "authorization", "x-cmbs-actor", "origin")
NAMES = st.sampled_from(
    [*(name.encode() for name in ASKED), b"Host", b"Content-Type", b"PREFER", b"accept", b"x-other"]
)
VALUES = st.sampled_from([b"", b"localhost", b"application/json", b"return=minimal", "kün".encode(), b"\xff", b"a b"])


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    heads._remembered.clear()
    yield
    heads._remembered.clear()


def told(headers: Headers) -> list[str | None]:
    found: list[str | None] = []
    for name in ASKED:
        try:
            found.append(headers.value(name))
        except InvalidRequest as exc:
            found.append(f"refused: {exc}")
    return found


@given(st.lists(st.lists(st.tuples(NAMES, VALUES), max_size=4), max_size=6))
def test_a_head_says_the_same_the_first_time_and_ever_after(sent: list[Pairs]) -> None:
    for pairs in [*sent, *sent]:
        read = Headers([(name.lower(), value) for name, value in pairs])
        again = headers_of(list(pairs))
        assert (told(again), again.pairs, again.by_name) == (told(read), read.pairs, read.by_name)


@pytest.mark.parametrize(
    "pair",
    [
        (b"Authorization", b"Bearer cmbs_secret"),
        (b"Cookie", b"session=secret"),
        (b"Idempotency-Key", b"once"),
        (b"If-Match", b'"head"'),
        (b"X-Other", b"whatever"),
        (b"Host", b"localhost"),  # a second one
        (b"Prefer", b"\xff"),
        (b"User-Agent", f"whatever {new_key().text}".encode()),
        (b"User-Agent", b"a" * 2000),
    ],
)
def test_what_is_secret_or_said_once_is_not_remembered(pair: tuple[bytes, bytes]) -> None:
    usual = [(b"Host", b"localhost"), (b"Content-Type", b"application/json")]
    assert headers_of(usual) is headers_of(list(usual))
    headers_of([*usual, pair])
    assert list(heads._remembered) == [tuple(usual)]


def test_strangers_cannot_fill_the_memory() -> None:
    for number in range(5000):
        headers_of([(b"host", b"localhost"), (b"user-agent", b"%d" % number)])
    assert 0 < len(heads._remembered) <= 1024
