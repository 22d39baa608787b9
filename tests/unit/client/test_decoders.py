"""Answers are decoded in several threads, also where all of them meet a type for the first time."""

import subprocess
import sys

import pytest

# In a process of its own, since what is tested is that it does not crash. A thread is interrupted as often as can be.
PROGRAM = """
import sys, threading, types
import msgspec
from cmbs.client.exchange import find_decoder

CLASSES = '''
class Inner(msgspec.Struct):
    a: "int" = 0
    b: "str" = ""

class Outer(msgspec.Struct):
    x: "Inner"
    y: "list[Inner]"
    z: "dict[str, Inner]"
'''
sys.setswitchinterval(1e-6)
for _ in range(300):
    module = sys.modules["made"] = types.ModuleType("made")
    module.msgspec = msgspec
    exec(CLASSES, module.__dict__)
    barrier, found = threading.Barrier(8), []
    def read(kind=module.Outer):
        barrier.wait()
        found.append(find_decoder(kind).decode(b'{"x": {"a": 1}, "y": [{"b": "c"}], "z": {}}').y[0].b)
    threads = [threading.Thread(target=read) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert found == ["c"] * 8
"""


@pytest.mark.slow
@pytest.mark.req("CLIENT-01")
def test_several_threads_may_read_the_first_answers_of_a_type() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
