"""Reads the benchmark's scenario folders, as they are in its repository."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmbs.adapters.itbench.scenarios import Effect, Note, Reason, read_scenario
from cmbs.adapters.sre.faults import KnownFault, System
from cmbs.documents.findings import InvalidDocument
from cmbs.documents.nodes import to_data
from cmbs.documents.text import read_document
from cmbs.errors import InvalidRequest, LimitExceeded

# The largest file of the benchmark has some ten thousand bytes, and it has less than a hundred folders.
MAX_FILE_BYTES = 1 << 20
MAX_FOLDERS = 10_000
_SOURCE = "imported from ITBench scenario folders (Apache-2.0); alerts are expected ones, not recorded telemetry"
# What is in every scenario, and in no kit or graph.
_NOT_READ = (
    "not read: `aliases` (things that fail together, which says nothing of what causes what), `fault`, "
    "`recommendedActions`, filters, and the texts of conditions and effects"
)
TRUTH, SETUP, SECOND_TRUTH = "groundtruth_v1.yaml", "scenario.yaml", "groundtruth.yaml"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What was read: the faults that can be used, in the order of their numbers, and the notes on all scenarios."""

    folders: int
    system: System
    notes: tuple[Note, ...]

    def totals(self) -> list[str]:
        """How many scenarios were used, and how often each reason was met."""
        return self._lines(in_full=False)

    def summary(self) -> list[str]:
        """What could not be used and why, line by line: the totals, and under each what is behind it."""
        return self._lines(in_full=True)

    def _lines(self, *, in_full: bool) -> list[str]:
        used = len(self.system.faults)
        lines = [f"{self.folders} scenario folders: {used} used, {self.folders - used} not"]
        for effect in Effect:
            about = [note for note in self.notes if note.reason.effect is effect]
            if about:
                lines.append(f"{effect.value}:")
            met = Counter(note.reason for note in about)
            for reason in (each for each in Reason if each in met):
                lines.append(f"  {met[reason]} × {reason.value}")
                if in_full:
                    lines += [f"    {note.scenario_id}: {note.what}" for note in about if note.reason is reason]
        return [*lines, _NOT_READ]


class _NoDocument(Exception):
    """What is in a file is of no use."""


def read_benchmark(directory: Path) -> Benchmark:
    """Read every `scenario_*` folder of a directory; one that cannot be used leaves a note and no scenario."""
    if not directory.is_dir():
        raise InvalidRequest(f"there is no directory `{directory}`")
    folders = sorted((each for each in directory.glob("scenario_*") if each.is_dir()), key=_sort_key)
    if not folders:
        raise InvalidRequest(f"there is no `scenario_*` folder in `{directory}`")
    if len(folders) > MAX_FOLDERS:
        raise LimitExceeded("scenario folders", MAX_FOLDERS, len(folders))
    faults: list[KnownFault] = []
    notes: list[Note] = []
    for folder in folders:
        fault, found = _read_folder(folder)
        notes += found
        if fault is not None:
            faults.append(fault)
    return Benchmark(len(folders), System("itbench", "ITBench", _SOURCE, tuple(faults)), tuple(notes))


def _sort_key(folder: Path) -> tuple[Any, ...]:
    """`scenario_9` before `scenario_10`."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", folder.name))


def _read_folder(folder: Path) -> tuple[KnownFault | None, list[Note]]:
    notes: list[Note] = []
    documents: dict[str, Mapping[str, Any] | None] = {}
    for name in (TRUTH, SETUP, SECOND_TRUTH):
        documents[name] = None
        try:
            documents[name] = _read_mapping(folder / name)
        except FileNotFoundError:
            if name == TRUTH:
                return None, [Note(folder.name, Reason.NO_GROUND_TRUTH, f"`{name}`")]
        except (OSError, _NoDocument) as exc:
            reason = Reason.UNREADABLE if name == TRUTH else Reason.SIDE_UNREADABLE
            notes.append(Note(folder.name, reason, f"`{name}`: {exc}"))
    truth = documents[TRUTH]
    if truth is None:
        return None, notes
    fault, found = read_scenario(folder.name, truth, documents[SETUP], documents[SECOND_TRUTH])
    return fault, notes + found


def _read_mapping(path: Path) -> Mapping[str, Any]:
    """The mapping that a YAML file holds; OSError or _NoDocument say what is wrong with it."""
    if path.exists() and not path.is_file():
        # Opening a pipe would block until another process writes to it.
        raise _NoDocument("it is no file")
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise _NoDocument(f"it has more than {MAX_FILE_BYTES} bytes")
    try:
        document = to_data(read_document(data, path.name), path.name)
    except InvalidDocument as exc:
        raise _NoDocument(", ".join(f"{each.message} [{each.rule}]" for each in exc.findings)) from exc
    if not isinstance(document, Mapping):
        raise _NoDocument("it holds no mapping")
    return document
