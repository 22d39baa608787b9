"""A whole belief server over stores that fail, in a world that follows from one number.

Two server processes share one log. Requests are sent, repeated and reordered; processes crash before and after a
commit, lose replies, are restarted, forget sessions and overtake each other in the middle of a call; a store of
tombstones beside the log fails, times out, answers late, applies and loses the reply, or refuses. After every step the
stored log is compared with a small model of the protocol that shares no code with the server. The same seed is the same
run, call for call.

Not simulated: groups of commands in one commit and checkpoints, which have threads of their own. Kills of real
processes under load cover these.

::

    python -m cmbs.testing.simulation --seeds 100000 --from 1
    python -m cmbs.testing.simulation --seed 4711           # one seed, with its trace
"""

from cmbs.testing.simulation.model import Disagreement, Model, Request
from cmbs.testing.simulation.run import Shape, SimulationFailed, Summary, shape_of, simulate

__all__ = ["Disagreement", "Model", "Request", "Shape", "SimulationFailed", "Summary", "shape_of", "simulate"]
