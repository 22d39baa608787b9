"""What is installed of the frameworks, and what is said where one is not there."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The modules of a framework while the client and nothing else can be found.
IMPORT = """
import sys

class OnlyClient:
    allowed = sys.stdlib_module_names | {"cmbs", "coverage", "msgspec", "rfc8785"} | {
        "anyio", "h11", "httpcore2", "httpx2", "idna", "sniffio", "truststore", "typing_extensions"
    }

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.allowed:
            raise ModuleNotFoundError(f"`{name}` is not installed", name=name)

sys.meta_path.insert(0, OnlyClient())

from importlib import import_module
import cmbs.frameworks.gate

for name in ("langchain", "openai_agents", "pydantic_ai"):
    try:
        import_module(f"cmbs.frameworks.{name}")
    except ImportError as exc:
        print(exc)
# The types of the API are made of those of the kernels, which are pure; what serves is not there.
server = ("cmbs.http", "cmbs.belief.", "cmbs.substrate.", "cmbs.streams", "cmbs.stores")
print([name for name in sys.modules if name.startswith(server) and ".kernel" not in name])
"""


@pytest.mark.slow
@pytest.mark.req("FRAME-07")
def test_a_framework_that_is_not_installed_is_named_with_its_extra() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "this module needs `pip install 'cmbs[langchain]'`: no `langchain` here",
        "this module needs `pip install 'cmbs[openai-agents]'`: no `agents` here",
        "this module needs `pip install 'cmbs[pydantic-ai]'`: no `pydantic_ai` here",
        "[]",
    ]
