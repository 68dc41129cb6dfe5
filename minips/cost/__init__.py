"""The cost model: closed forms, calibrations of this machine, and predictions to compare with runs."""

from minips.cost.calibrate import alone, calibrate, problem_words
from minips.cost.cluster import Cluster, ClusterTable
from minips.cost.comparison import Comparison, compare
from minips.cost.formulas import (
    asynchronous_lr_limit,
    asynchronous_update_s,
    best_chunks,
    break_even_bandwidth,
    crossover_nbytes,
    exponential_round_s,
    exponential_update_s,
    halving_doubling_s,
    parameter_server_s,
    parameter_server_step_s,
    pipelined_s,
    ring_allreduce_s,
    synchronous_round_s,
    tree_allreduce_s,
    two_shot_allreduce_s,
)
from minips.cost.maps import CodecMap, Sample, codec_map
from minips.cost.predict import Prediction, against_measured, message_nbytes, predict
from minips.cost.probe import rounds, steps_to
from minips.cost.tune import Choice, Tuning, tune
from minips.engines.simulated.engine import Simulated
from minips.machines.calibration import Calibration
from minips.machines.topology import FatTree, Ring, Star, Topology, Traffic, Tree, TwoRacks

__all__ = ["Calibration", "alone", "calibrate", "problem_words"]
__all__ += ["Cluster", "ClusterTable", "against_measured"]
__all__ += ["FatTree", "Ring", "Simulated", "Star", "Topology", "Traffic", "Tree", "TwoRacks"]
__all__ += ["asynchronous_lr_limit", "asynchronous_update_s", "synchronous_round_s"]
__all__ += ["exponential_round_s", "exponential_update_s"]
__all__ += ["best_chunks", "break_even_bandwidth", "crossover_nbytes", "pipelined_s"]
__all__ += ["halving_doubling_s", "ring_allreduce_s", "tree_allreduce_s", "two_shot_allreduce_s"]
__all__ += ["parameter_server_s", "parameter_server_step_s"]
__all__ += ["CodecMap", "Sample", "codec_map"]
__all__ += ["Comparison", "Prediction", "compare", "message_nbytes", "predict"]
__all__ += ["Choice", "Tuning", "rounds", "steps_to", "tune"]


def __dir__() -> list[str]:
    return __all__
