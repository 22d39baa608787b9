"""Check the Markdown of the repository: links, anchors, names of tests, Python blocks, and the changelog.

Exits with 1 and one line a fault. Python blocks are only compiled here; tests/system/test_docs.py runs them.
A fence opens with a language and may add words: `no-run` for Python that is not to be executed, `run` for a shell
block that is.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent

FENCE = re.compile(r"^(?P<indent> {0,3})(?P<mark>`{3,}|~{3,})(?P<info>[^`]*)$")
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(?P<title>.+?)\s*#*\s*$")
INLINE_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\((?P<target>[^()\s]+(?:\([^()]*\))?)(?:\s+\"[^\"]*\")?\)")
REFERENCE_LINK = re.compile(r"^ {0,3}\[[^\]]+\]:\s+(?P<target>\S+)")
EXPLICIT_ANCHOR = re.compile(r"<a\s+(?:id|name)=\"(?P<anchor>[^\"]+)\"")
TEST_NAME = re.compile(r"`(?P<path>tests/[\w/]+\.py)(?:::(?P<name>[\w:]+))?`")
EXTERNAL = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)
UNRELEASED = re.compile(r"^## \[?Unreleased\]?\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced code block: its language, the other words of its fence, its text and the line its text begins on."""

    language: str
    words: frozenset[str]
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Document:
    """A Markdown file, its prose (lines of code blanked out, so that numbers stay) and its code blocks."""

    path: Path
    prose: tuple[str, ...]
    blocks: tuple[Block, ...]

    def place(self, line: int) -> str:
        """File and line, as editors read it."""
        return f"{self.path.relative_to(ROOT)}:{line}"


def markdown_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return sorted(path for name in listed.split("\0") if name and (path := ROOT / name).is_file())


def read_document(path: Path) -> Document:
    prose: list[str] = []
    blocks: list[Block] = []
    lines = iter(enumerate(path.read_text("utf-8").splitlines(), 1))
    for number, line in lines:
        opening = FENCE.match(line)
        if opening is None:
            prose.append(line)
            continue
        body: list[str] = []
        for _, inner in lines:
            closing = FENCE.match(inner)
            if closing and closing["mark"].startswith(opening["mark"]) and not closing["info"].strip():
                break
            body.append(inner.removeprefix(opening["indent"]))
        language, *words = opening["info"].split() or [""]
        blocks.append(Block(language, frozenset(words), "\n".join(body) + "\n", number + 1))
        prose.extend([""] * (len(body) + 2))
    return Document(path, tuple(prose), tuple(blocks))


def anchors(document: Document) -> set[str]:
    """The anchors that a Markdown viewer derives from the headings, and the explicit ones."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for line in document.prose:
        found.update(match["anchor"] for match in EXPLICIT_ANCHOR.finditer(line))
        if heading := HEADING.match(line):
            title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading["title"]).replace("`", "")
            slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
    return found


def link_faults(document: Document, documents: dict[Path, Document]) -> Iterator[str]:
    for number, line in enumerate(document.prose, 1):
        text = re.sub(r"`[^`]*`", "", line)
        targets = [match["target"] for match in INLINE_LINK.finditer(text)]
        targets += [match["target"] for match in REFERENCE_LINK.finditer(text)]
        for target in targets:
            if EXTERNAL.match(target):
                continue
            file_part, _, anchor = unquote(target).partition("#")
            path = (document.path.parent / file_part).resolve() if file_part else document.path
            if not path.exists():
                yield f"{document.place(number)}: `{target}` leads nowhere"
            elif anchor and path in documents and anchor not in anchors(documents[path]):
                yield f"{document.place(number)}: `{target}` names no heading"


def names_defined_in(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return names


def test_name_faults(document: Document) -> Iterator[str]:
    for number, line in enumerate(document.prose, 1):
        for match in TEST_NAME.finditer(line):
            path = ROOT / match["path"]
            if not path.is_file():
                yield f"{document.place(number)}: `{match['path']}` does not exist"
            elif match["name"] and not set(match["name"].split("::")) <= names_defined_in(path):
                yield f"{document.place(number)}: `{match['path']}` has no `{match['name']}`"


def python_faults(document: Document) -> Iterator[str]:
    for block in document.blocks:
        if block.language == "python" and "no-run" not in block.words:
            try:
                compile(block.text, str(document.path), "exec")
            except SyntaxError as error:
                line = block.line + (error.lineno or 1) - 1
                yield f"{document.place(line)}: {error.msg}"


def changelog_faults() -> Iterator[str]:
    changelog = ROOT / "CHANGELOG.md"
    if not changelog.is_file():
        yield "CHANGELOG.md does not exist"
    elif not UNRELEASED.search(changelog.read_text("utf-8")):
        yield "CHANGELOG.md has no section `Unreleased`"


def faults() -> Iterator[str]:
    documents = {path: read_document(path) for path in markdown_files()}
    for document in documents.values():
        yield from link_faults(document, documents)
        yield from test_name_faults(document)
        yield from python_faults(document)
    yield from changelog_faults()


def main() -> int:
    found = list(faults())
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
