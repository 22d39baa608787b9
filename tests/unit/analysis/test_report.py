"""The report over many sessions: a page that is whole, self-contained, and safe whatever sessions are called."""

from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from cmbs.analysis import Analysis, KitStudy, Method, Redundancy, analyse, trajectory_of
from cmbs.analysis.report import (
    COLUMNS,
    MAX_EVENTS_DRAWN,
    MAX_IDS_DRAWN,
    Report,
    build_report,
    draw_log,
    row_of,
    summary_of,
)
from cmbs.belief.server import BeliefServer
from cmbs.console import ConsoleFiles
from cmbs.kit import KitProvider, ontology_of
from cmbs.messages import OntologyBundle
from cmbs.testing.strategies.hostile_ids import HOSTILE_IDS
from tests.support.domains import kit_of
from tests.support.subtests import for_each

SOURCES = Path(__file__).resolve().parents[3] / "console"
YES, NO = frozenset({0}), frozenset({1})
KIT = kit_of([[YES, NO, NO], [NO, YES, NO]], [1.0] * 3)
NASTY = "<script>alert('x')</script>&\"]]>\x00"


def plain(session_id: str = "", gone: str = "a", truth: str | None = None) -> Analysis:
    server = BeliefServer()
    opened, _ = server.declare_session(OntologyBundle("any", "1", "", ""), ["a", "b"])
    for hypothesis_id in gone:
        server.eliminate(opened, "agent", hypothesis_id, [hypothesis_id])
    found = analyse(trajectory_of(server.audit_trace(opened)), truth=truth)
    return structs.replace(found, session_id=session_id) if session_id else found


def on_kit(strongest: Method = Method.EXACT) -> Analysis:
    server = BeliefServer(belief_provider=KitProvider(KIT))
    opened, _ = server.declare_session(ontology_of(KIT))
    for probe_id in ("p0", "p1"):
        server.apply_probe(opened, probe_id, "o1")
    return analyse(trajectory_of(server.audit_trace(opened)), KitStudy(KIT), "h2", strongest=strongest)


class Reader(HTMLParser):
    """The elements of a page with their attributes, and the text of its one block of data."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.data = ""
        self._in_data = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self._in_data = ("id", "report") in attrs

    def handle_endtag(self, tag: str) -> None:
        self._in_data = False

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.data += data


def write_page(report: Report) -> str:
    """The page out of the sources of the console, which holds data as the built one does."""
    page = ConsoleFiles(SOURCES).make_report(msgspec.json.encode(report))
    assert page is not None
    return page


@pytest.mark.req("AN-09")
@for_each("name", [NASTY, "</script><script>alert(1)</script>", "<!--<script>", *HOSTILE_IDS])
def test_a_page_is_safe_whatever_a_session_is_called(name: str) -> None:
    report = build_report([plain(name or "empty"), on_kit()], {}, name)
    read, empty = Reader(write_page(report)), Reader(write_page(build_report([], {}, "")))
    assert read.found == empty.found
    assert msgspec.json.decode(read.data, type=Report) == report


def test_a_page_that_was_not_built_is_none(tmp_path: Path) -> None:
    assert ConsoleFiles(tmp_path).make_report(b"{}") is None


def test_a_log_is_drawn_with_what_the_page_needs_of_it() -> None:
    server = BeliefServer()
    opened, _ = server.declare_session(OntologyBundle("any", "1", "", ""), ["a", "b", "c"])
    server.eliminate(opened, "agent", "o", ["a", "elsewhere"])
    server.enter_obligation(opened, "gate", 2)
    server.request_exit(opened, "gate")
    drawn = draw_log(server.audit_trace(opened))
    assert drawn is not None
    first, gone, entered, refused = drawn.events
    assert drawn.with_ids
    assert (first["payload"]["hypotheses"], first["outcome"]) == (["a", "b", "c"], {"universe_size": 3})
    assert (gone["payload"]["source_id"], gone["delta"]) == ("agent", {"eliminated": ["a"]})
    assert entered["payload"]["min_total_eliminations"] == 2
    assert refused["outcome"] == {"approved": False, "reason": "below_threshold"}
    (reported,) = build_report([plain("s")], {"s": drawn}, "").sessions
    assert (reported.events, reported.with_ids) == (drawn.events, True)


def test_a_large_universe_is_drawn_by_its_counts_and_a_long_log_not_at_all() -> None:
    server = BeliefServer()
    ids = [str(number) for number in range(MAX_IDS_DRAWN + 1)]
    opened, _ = server.declare_session(OntologyBundle("any", "1", "", ""), ids)
    server.eliminate(opened, "agent", "o", ["7", "8"])
    entries = server.audit_trace(opened)
    drawn = draw_log(entries)
    assert drawn is not None
    assert not drawn.with_ids
    assert "hypotheses" not in drawn.events[0]["payload"]
    assert (drawn.events[1]["left"], "delta" in drawn.events[1]) == (MAX_IDS_DRAWN - 1, False)
    assert draw_log([entries[0], *[entries[1]] * MAX_EVENTS_DRAWN]) is None
    (reported,) = build_report([plain("s")], {"s": None}, "").sessions
    assert reported.events is None


def test_reports_are_counted_by_kind() -> None:
    (reported,) = build_report([on_kit()], {}, "").sessions
    counted = dict(reported.kinds)
    assert (sum(counted.values()), counted["effective"]) == (2, 2)
    assert list(counted) == ["effective", *(kind.value.replace("_", " ") for kind in Redundancy)]


def test_regret_by_different_methods_is_not_averaged() -> None:
    together = dict(summary_of([on_kit(), on_kit(Method.HUFFMAN), on_kit(Method.HUFFMAN)]))
    assert [name for name in together if name.startswith("regret")] == ["regret, mean (exact)"]
    assert "beyond at most, mean (huffman)" in together


@pytest.mark.req("WORTH-01")
def test_where_only_a_bound_is_known_a_row_says_at_most_and_no_dot_says_that_choices_lost_it() -> None:
    row = dict(zip(COLUMNS, row_of(on_kit(Method.HUFFMAN)), strict=True))
    assert row["regret"].startswith("at most ")
    assert (row["luck"], row["against"]) == ("–", "huffman")
    known, bound, without = build_report([on_kit(), on_kit(Method.HUFFMAN), plain()], {}, "").sessions
    assert (known.regret, known.luck) != (None, None)
    assert (bound.regret, bound.luck) == (without.regret, without.luck) == (None, None)


def test_a_row_says_a_dash_where_there_is_nothing_to_say() -> None:
    row = dict(zip(COLUMNS, row_of(plain("s", gone="ab")), strict=True))
    assert (row["session"], row["left"], row["bits"], row["truth"], row["regret"]) == ("s", "0", "–", "–", "–")


@pytest.mark.parametrize(("gone", "said"), [("a", "killed"), ("b", "found"), ("", "alive")])
def test_a_row_says_what_became_of_the_truth(gone: str, said: str) -> None:
    assert row_of(plain(gone=gone, truth="a"))[COLUMNS.index("truth")] == said


def test_a_certificate_that_may_not_be_the_smallest_is_marked() -> None:
    found = plain()
    doubtful = structs.replace(found.certificate, size=1, exact=False)
    assert row_of(structs.replace(found, certificate=doubtful))[COLUMNS.index("certificate")] == "1?"


def test_the_summary_counts_what_it_says() -> None:
    together = dict(summary_of([plain(gone="a", truth="a"), plain(gone="b", truth="a"), plain(gone="ab"), on_kit()]))
    assert together["sessions"] == "4"
    assert together["eliminations"] == "6"
    assert together["truth survived"] == "2 of 3"
    assert together["truth found"] == "2 of 3"
    assert together["contradictions (nothing left)"] == "1"
    assert together["probes, mean"] == "2.000"
    assert (together["regret, mean (exact)"], "regret, mean (huffman)" in together) == ("0.000", False)
    nothing = dict(summary_of([]))
    assert (nothing["redundant"], nothing["bits gained, mean"]) == ("–", "–")
