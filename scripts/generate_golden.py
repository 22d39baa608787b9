"""Write down what the format means today: its fingerprint, the golden logs, and the vectors of proofs and exports.

Until the first release is tagged, the format may change: `make golden`, and commit what changes with its cause.
"""

import os
import re
import shutil
import sys
from pathlib import Path

from cmbs.ledger import format as ledger_format
from cmbs.ledger.format import FINGERPRINT
from scripts.generate_export_vectors import write_vectors as write_export_vectors
from scripts.generate_proof_vectors import write_vectors as write_proof_vectors
from tests.golden.fingerprint import compute_fingerprint
from tests.golden.play import GOLDEN, write_logs

_CONSTANT = re.compile(r'^FINGERPRINT = ".*"$', re.MULTILINE)


def main() -> None:
    """Write all of it anew."""
    if sys.flags.hash_randomization:
        # Proposals that are woken at once come in the order of hashes, which is another one each time.
        raise SystemExit("run `make golden`, which sets PYTHONHASHSEED=0: the same software then writes the same files")
    if compute_fingerprint() != FINGERPRINT:
        write_fingerprint(compute_fingerprint())
        # Stores have read the constant when they were imported.
        os.execv(sys.executable, [sys.executable, "-m", "scripts.generate_golden"])
    shutil.rmtree(GOLDEN, ignore_errors=True)
    write_logs(GOLDEN)
    write_proof_vectors()
    write_export_vectors()


def write_fingerprint(fingerprint: str) -> None:
    """Set the constant in its file."""
    path = Path(ledger_format.__file__)
    path.write_text(_CONSTANT.sub(f'FINGERPRINT = "{fingerprint}"', path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
