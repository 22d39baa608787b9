"""Generate the Python stubs of the `.proto` files, beside each."""

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = (Path("cmbs/mcp/deciders/proto/ext_mcp.proto"), Path("cmbs/tee/proto/tee.proto"))


def generate(target: Path) -> list[Path]:
    """Write the stubs under `target`, in the layout of the repository; the files."""
    well_known = files("grpc_tools") / "_proto"
    failed = protoc.main(
        [
            "protoc",
            f"--proto_path={ROOT}",
            f"--proto_path={well_known}",
            f"--python_out={target}",
            f"--pyi_out={target}",
            f"--grpc_python_out={target}",
            *map(str, PROTOS),
        ]
    )
    if failed:
        raise SystemExit(f"protoc ended with {failed}")
    made = [path for proto in PROTOS for path in sorted((target / proto.parent).glob(f"{proto.stem}_pb2*.py*"))]
    for path in made:
        # The generators leave white space at line ends, which the house style does not allow.
        tidy = "\n".join(line.rstrip() for line in path.read_text("utf-8").splitlines())
        path.write_text(tidy.rstrip("\n") + "\n", "utf-8")
    return made


if __name__ == "__main__":
    for made_file in generate(ROOT):
        sys.stdout.write(f"{made_file.relative_to(ROOT)}\n")
