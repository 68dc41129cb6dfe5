"""What it should cost: closed forms, what this machine takes for each stage, and a prediction to hold against a run."""

from minips.cost.calibrate import Calibration, alone, calibrate
from minips.cost.formulas import halving_doubling_s, parameter_server_s, ring_allreduce_s, tree_allreduce_s
from minips.cost.predict import Comparison, Prediction, compare, predict
from minips.cost.simulate import Simulated, against_measured
from minips.cost.topology import FatTree, Ring, Star, Topology, Traffic, Tree, TwoRacks

__all__ = [
    "Calibration",
    "Comparison",
    "FatTree",
    "Prediction",
    "Ring",
    "Simulated",
    "Star",
    "Topology",
    "Traffic",
    "Tree",
    "TwoRacks",
    "against_measured",
    "alone",
    "calibrate",
    "compare",
    "halving_doubling_s",
    "parameter_server_s",
    "predict",
    "ring_allreduce_s",
    "tree_allreduce_s",
]
