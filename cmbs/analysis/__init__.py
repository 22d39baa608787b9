"""What a trajectory was worth: bits, redundancy, luck and regret, from a session's log and its kit.

Pure, and apart from the belief server: it neither selects nor values probes, and nothing here decides what may be
believed.
"""

from cmbs.analysis.assess import KitStudy, analyse
from cmbs.analysis.findings import Analysis
from cmbs.analysis.optimum import DEFAULT_STEPS, Method
from cmbs.analysis.table import Table, table_of
from cmbs.analysis.trajectory import Redundancy, Trajectory, trajectory_of

__all__ = [
    "DEFAULT_STEPS",
    "Analysis",
    "KitStudy",
    "Method",
    "Redundancy",
    "Table",
    "Trajectory",
    "analyse",
    "table_of",
    "trajectory_of",
]
