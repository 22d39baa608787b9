"""The report over many sessions: a page that is whole, self-contained, and safe whatever sessions are called."""

import math
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from cmbs.analysis import Analysis, KitStudy, Method, analyse, trajectory_of
from cmbs.analysis.plots import Bar, Dot, Line, bar_plot, dot_plot, line_plot
from cmbs.analysis.report import COLUMNS, MAX_DRAWN, html_report, row_of, summary_of
from cmbs.belief.server import BeliefServer
from cmbs.kit import KitProvider, ontology_of
from cmbs.messages import OntologyBundle
from cmbs.testing.strategies.hostile_ids import HOSTILE_IDS
from tests.support.domains import kit_of

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
    """Which elements a page has, and whether each is closed where it should be."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


@pytest.mark.req("AN-09")
@pytest.mark.parametrize("name", [NASTY, *HOSTILE_IDS])
def test_a_page_is_safe_whatever_a_session_is_called(name: str) -> None:
    page = html_report([plain(name or "empty"), on_kit()], name)
    read = Reader(page)
    assert "script" not in read.found
    assert not {key for key, _ in read.attributes if key.startswith("on")}
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        assert ET.fromstring(drawing).tag == "svg"


@pytest.mark.req("AN-09")
def test_a_page_needs_nothing_beside_it() -> None:
    page = html_report([plain(), on_kit()], "two sessions")
    assert not re.search(r"""(?:src|href)\s*=|url\(|@import|https?:""", page)


def test_sessions_with_a_kit_get_a_plot_of_skill_and_luck() -> None:
    assert html_report([on_kit()], "").count("<svg") == 3
    assert html_report([plain()], "").count("<svg") == 2


def test_the_plots_of_many_sessions_show_the_first_and_the_table_all() -> None:
    many = [plain(f"session {number}") for number in range(MAX_DRAWN + 5)]
    page = html_report(many, "many")
    assert page.count("<polyline") == MAX_DRAWN
    assert page.count('<tr><td title="session') == len(many)
    assert f"the first {MAX_DRAWN} sessions" in page


def test_regret_by_different_methods_is_not_averaged() -> None:
    together = dict(summary_of([on_kit(), on_kit(Method.HUFFMAN), on_kit(Method.HUFFMAN)]))
    assert [name for name in together if name.startswith("regret")] == ["regret, mean (exact)"]
    assert "beyond at most, mean (huffman)" in together


@pytest.mark.req("WORTH-01")
def test_where_only_a_bound_is_known_a_row_says_at_most_and_no_dot_says_that_choices_lost_it() -> None:
    row = dict(zip(COLUMNS, row_of(on_kit(Method.HUFFMAN)), strict=True))
    assert row["regret"].startswith("at most ")
    assert (row["luck"], row["against"]) == ("–", "huffman")
    assert "lost by choices" in html_report([on_kit()], "known")
    assert "lost by choices" not in html_report([on_kit(Method.HUFFMAN)], "bound")


def test_a_line_has_no_points_within_what_is_level() -> None:
    server = BeliefServer()
    opened, _ = server.declare_session(OntologyBundle("any", "1", "", ""), ["a", "b"])
    for number in range(9):
        server.eliminate(opened, "agent", str(number), ["a"] if number == 5 else [])
    page = html_report([analyse(trajectory_of(server.audit_trace(opened)))], "long")
    points = page.partition('points="')[2].partition('"')[0].split()
    assert len(points) == 4


def test_a_page_about_no_sessions_is_a_page() -> None:
    assert Reader(html_report([], "none")).found.count("svg") == 2


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


# --- plots ---

NUMBERS = st.floats(-1e6, 1e6)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=6))
def test_every_point_is_inside_the_plot(points: list[tuple[float, float]]) -> None:
    drawing = ET.fromstring(dot_plot([Dot("", x, y) for x, y in points], "x", "y"))
    _, _, width, height = map(float, drawing.attrib["viewBox"].split())
    for dot in drawing.iter("circle"):
        assert 0 <= float(dot.attrib["cx"]) <= width
        assert 0 <= float(dot.attrib["cy"]) <= height


def test_a_line_goes_from_the_highest_value_to_the_lowest() -> None:
    drawing = ET.fromstring(line_plot([Line("one", [(0, 2.0), (1, 1.0), (2, 0.0)])], "x", "y"))
    (line,) = drawing.iter("polyline")
    heights = [float(point.split(",")[1]) for point in line.attrib["points"].split()]
    assert heights == sorted(heights)
    assert heights[1] - heights[0] == pytest.approx(heights[2] - heights[1], abs=0.2)


def test_the_parts_of_a_bar_stand_on_each_other() -> None:
    drawing = ET.fromstring(bar_plot([Bar("one", [1.0, 0.0, 3.0])], ("a", "b", "c"), "y"))
    low, high = drawing.iter("rect")
    assert math.isclose(float(low.attrib["y"]), float(high.attrib["y"]) + float(high.attrib["height"]), abs_tol=0.2)
    assert float(high.attrib["height"]) == pytest.approx(3 * float(low.attrib["height"]), abs=0.5)
