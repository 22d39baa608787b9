"""Check the house style over every file that is, or would be, under version control.

Exits with 1 and one line a fault. How long a module may be is for a reviewer to judge.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MAX_FUNCTION_LINES = 60
# A file beyond this is data, and is not read.
MAX_TEXT_BYTES = 2_000_000

REGISTRY_HOST = re.compile(
    r"pypi\.org|pythonhosted\.org|registry\.npmjs|deb\.debian\.org|repo1?\.maven|crates\.io/api|proxy\.golang",
    re.IGNORECASE,
)
MACHINE_PATH = re.compile(r"(?<![\w.:/}])/(?:home|root|Users|work|workspace|farm|tmp)/\w")
# The brackets keep this file from matching itself.
UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E|X[X]X|HA[C]K)\b|raise Not[I]mplementedError\b")
VAGUE_NAME = re.compile(r"^_*(?:utils?|helpers?|managers?|misc|common|stuff)_*$")
PYTHON_NAME = re.compile(r"^(?:__init__|__main__|_?[a-z][a-z0-9_]*)\.py$")
TRAILING_SPACE = re.compile(r"[^\S\n]+$", re.MULTILINE)
FILE_NAME = re.compile(r"^[A-Za-z0-9._-]+$")
# Words that stand where the technical term should: caller, peer, process, reader. In quotes they are data.
HIDING_WORD = re.compile(
    r"(?<![a-z\"'`])(?:some[b]ody|no[b]ody|who[e]ver|every[b]ody|stran[g]ers|is de[a]f)(?![a-z\"'`])",
    re.IGNORECASE,
)
# Functions are verbs. These participles have no ending that gives them away; those verbs end as participles do.
IRREGULAR_PARTICIPLES = re.compile(
    "begun|born|bound|broken|built|chosen|drawn|driven|found|given|gone|grown|heard|held|kept|known|left|lost|made|met|"
    "paid|said|seen|sent|shown|spoken|stood|taken|thrown|told|understood|won|worn|written"
)
VERBS_IN_ED = re.compile("embed|exceed|feed|need|proceed|seed|shed|speed|succeed")
# Terms of art that begin with a participle.
PARTICIPLE_TERMS = frozenset({"closed_kit", "closed_provider", "expected_gain", "stored_entries"})
# SQLite, RFC, Idempotency-Key: a capital that belongs to the word.
PROPER_WORD = re.compile(r"^[A-Z][a-z]*[A-Z-]|^I ")

Fault = tuple[str, int, str]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def repository_files() -> tuple[Path, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return tuple(sorted(path for name in listed.split("\0") if name and (path := ROOT / name).is_file()))


@cache
def text_of(path: Path) -> str:
    """The text of a file; empty for what is not text."""
    if path.stat().st_size > MAX_TEXT_BYTES:
        return ""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        return ""


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(text_of(path), str(path))))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_files(*directories: str) -> list[Path]:
    """Python files under the directories, or all of them; generated protocol stubs are not ours to style."""
    return [
        path
        for path in repository_files()
        if path.suffix == ".py"
        and "_pb2" not in path.name
        and (not directories or path.relative_to(ROOT).parts[0] in directories)
    ]


def lines_matching(pattern: re.Pattern[str]) -> Iterator[Fault]:
    for path in repository_files():
        # Few files have a match, and lines take ten times as long as the whole.
        if pattern.search(text_of(path)):
            for number, line in enumerate(text_of(path).splitlines(), 1):
                if match := pattern.search(line):
                    yield name_of(path), number, match.group()


def functions(path: Path) -> Iterator[Function]:
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def name_of_call(node: ast.Call) -> str:
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def registry_hosts() -> Iterator[Fault]:
    return lines_matching(REGISTRY_HOST)


def machine_paths() -> Iterator[Fault]:
    return lines_matching(MACHINE_PATH)


def todo_marks() -> Iterator[Fault]:
    # Generated stubs raise in what a server is to override.
    return (fault for fault in lines_matching(UNFINISHED) if "_pb2" not in fault[0])


def untidy_text() -> Iterator[Fault]:
    for path in repository_files():
        text = text_of(path)
        if text and not text.endswith("\n"):
            yield name_of(path), text.count("\n") + 1, "no line end at the end of the file"
        for match in TRAILING_SPACE.finditer(text):
            yield name_of(path), text.count("\n", 0, match.start()) + 1, "white space at the end of the line"


def long_functions() -> Iterator[Fault]:
    for path in python_files():
        for function in functions(path):
            length = (function.end_lineno or function.lineno) - function.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield name_of(path), function.lineno, f"{function.name} has {length} lines"


def odd_file_names() -> Iterator[Fault]:
    for path in repository_files():
        pattern = PYTHON_NAME if path.suffix == ".py" else FILE_NAME
        parents = path.relative_to(ROOT).parts[:-1]
        if not pattern.match(path.name) or not all(map(FILE_NAME.match, parents)):
            yield name_of(path), 0, "not a plain file name"
        if any(VAGUE_NAME.match(Path(part).stem) for part in path.relative_to(ROOT).parts):
            yield name_of(path), 0, "says nothing about what is in it"


def vague_names() -> Iterator[Fault]:
    """Definitions, parameters and variables of the package; `sid` is a session_id, `Manager` says nothing."""
    for path in python_files("cmbs"):
        for node in nodes_of(path):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                    pass
                case ast.Name(id=name, ctx=ast.Store()):
                    pass
                case ast.ClassDef(name=class_name):
                    name = re.sub(r".*(?=(?:Manager|Helper|Utils?)$)", "", class_name).lower()
                case _:
                    continue
            if name == "sid" or VAGUE_NAME.match(name):
                yield name_of(path), node.lineno, name


def opening_text(node: ast.expr) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return text
        case _:
            return None


def closing_text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=[*_, ast.Constant(value=str(text))]):
            return text
        case _:
            return ""


def errors_in_capitals() -> Iterator[Fault]:
    """Messages of raised errors: lower case at the start, no full stop at the end."""
    for path in python_files("cmbs"):
        for node in nodes_of(path):
            if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call) or not node.exc.args:
                continue
            message = node.exc.args[0]
            start = opening_text(message)
            if start is not None and start[:1].isupper() and not PROPER_WORD.match(start):
                yield name_of(path), node.lineno, f"begins with a capital: {start}"
            if closing_text(message).endswith("."):
                yield name_of(path), node.lineno, "ends with a full stop"


def hiding_words() -> Iterator[Fault]:
    """In the package, the tests and the documents; not in specifications and records that stay as they were."""
    for path in repository_files():
        place = name_of(path)
        prose = path.suffix == ".md" and not re.match(r"docs/adr/|CHANGELOG|BELIEF_SERVER_SPEC", place)
        if (prose or (path.suffix == ".py" and place.startswith(("cmbs/", "tests/")))) and HIDING_WORD.search(
            text_of(path)
        ):
            for number, line in enumerate(text_of(path).splitlines(), 1):
                if match := HIDING_WORD.search(line):
                    yield place, number, match.group()


def is_attribute(function: Function) -> bool:
    """A property or a fixture is a value, and may be named by an adjective."""
    return any(re.search(r"property$|\.setter$|fixture", ast.unparse(each)) for each in function.decorator_list)


def participle_functions() -> Iterator[Fault]:
    for path in python_files("cmbs"):
        for function in functions(path):
            word = function.name.strip("_").partition("_")[0]
            participle = IRREGULAR_PARTICIPLES.fullmatch(word) or (
                word.endswith("ed") and not VERBS_IN_ED.fullmatch(word) and function.name not in PARTICIPLE_TERMS
            )
            if participle and not is_attribute(function):
                yield name_of(path), function.lineno, f"`{function.name}` is not a verb"


def sleeping_tests() -> Iterator[Fault]:
    for path in python_files("tests"):
        for node in nodes_of(path):
            if isinstance(node, ast.Call) and name_of_call(node) == "sleep":
                # sleep(0) only lets other tasks run.
                yields = len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
                if not yields:
                    yield name_of(path), node.lineno, ast.unparse(node)


def mocking_tests() -> Iterator[Fault]:
    for path in python_files("tests"):
        for node in nodes_of(path):
            match node:
                case ast.ImportFrom(module=str(module)) if "mock" in module.split("."):
                    yield name_of(path), node.lineno, module
                case ast.ImportFrom(names=names) | ast.Import(names=names):
                    for alias in names:
                        if "mock" in alias.name.split("."):
                            yield name_of(path), node.lineno, alias.name
                case _:
                    pass


def checks_something(function: Function) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call) and re.match(
            r"assert|check|verify|expect|raises|run_state_machine", name_of_call(node)
        ):
            return True
    return False


def checkless_tests() -> Iterator[Fault]:
    for path in python_files("tests"):
        for function in functions(path):
            if function.name.startswith("test_") and not checks_something(function):
                yield name_of(path), function.lineno, function.name


RULES: list[Callable[[], Iterator[Fault]]] = [
    registry_hosts,
    machine_paths,
    todo_marks,
    untidy_text,
    long_functions,
    odd_file_names,
    vague_names,
    errors_in_capitals,
    hiding_words,
    participle_functions,
    sleeping_tests,
    mocking_tests,
    checkless_tests,
]


def main() -> int:
    found = [f"{name}:{line}: {rule.__name__}: {what}" for rule in RULES for name, line, what in rule()]
    sys.stdout.writelines(f"{fault}\n" for fault in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
