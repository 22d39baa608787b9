"""Kits: a domain as data, its hypotheses and the probes that tell them apart."""

from cmbs.errors import InvalidKit
from cmbs.kit.model import (
    NO_DATA,
    Constant,
    CutPoints,
    Gaps,
    Kit,
    KitHypothesis,
    KitOutcome,
    KitProbe,
    NormalBand,
    Reading,
    Reduction,
    Soundness,
    Tail,
    Window,
)
from cmbs.kit.provider import KitProvider, ontology_of
from cmbs.kit.responses import ReadResponse, outcome_for, read_response
from cmbs.kit.windows import MAX_WINDOW_SAMPLES, ReducedWindow, reduce_window

__all__ = [
    "MAX_WINDOW_SAMPLES",
    "NO_DATA",
    "Constant",
    "CutPoints",
    "Gaps",
    "InvalidKit",
    "Kit",
    "KitHypothesis",
    "KitOutcome",
    "KitProbe",
    "KitProvider",
    "NormalBand",
    "ReadResponse",
    "Reading",
    "ReducedWindow",
    "Reduction",
    "Soundness",
    "Tail",
    "Window",
    "ontology_of",
    "outcome_for",
    "read_response",
    "reduce_window",
]
