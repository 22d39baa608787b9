"""Makes sure that the browser tests have a Chromium: the one that CMBS_CHROMIUM names, one on the PATH, or Debian's.

It is installed by apt-get where this may: on Debian and its kin, as root. Elsewhere it says what to do, and the tests
are skipped, unless CMBS_REQUIRE_BACKENDS=1: then they fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

VARIABLE = "CMBS_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """The program to start; None where there is none."""
    given = os.environ.get(VARIABLE)
    if given:
        return given
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def install() -> None:
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        print(f"the browser tests need Chromium: install it, or set {VARIABLE}", file=sys.stderr)
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in ([apt, "update", "-qq"], [apt, "install", "-y", "-qq", "--no-install-recommends", "chromium"]):
        if subprocess.run(command, check=False, env=environment, stdout=subprocess.DEVNULL).returncode:
            print(f"`{' '.join(command)}` failed: the browser tests need Chromium, or {VARIABLE}", file=sys.stderr)
            return


if __name__ == "__main__":
    if find_chromium() is None:
        install()
