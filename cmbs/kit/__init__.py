"""Kits: a domain as data, its hypotheses and the probes that tell them apart."""

from cmbs.errors import InvalidKit
from cmbs.kit.model import (
    NO_DATA,
    CutPoints,
    Kit,
    KitHypothesis,
    KitOutcome,
    KitProbe,
    NormalBand,
    Reading,
    Soundness,
    Tail,
)
from cmbs.kit.provider import KitProvider, ontology_of
from cmbs.kit.responses import outcome_for

__all__ = [
    "NO_DATA",
    "CutPoints",
    "InvalidKit",
    "Kit",
    "KitHypothesis",
    "KitOutcome",
    "KitProbe",
    "KitProvider",
    "NormalBand",
    "Reading",
    "Soundness",
    "Tail",
    "ontology_of",
    "outcome_for",
]
