"""minips: a parameter server whose core you can read, real enough to measure, open at every joint.

This module contains only the public names. The classes of each kind are also in a namespace: ``quantizers.TopK`` is
``TopK``. ``cost``, ``lab``, ``testing`` and ``topologies`` are imported on first use, since few programs need them all.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from minips import datasets
from minips import engines as engines
from minips import exchanges as exchanges
from minips import stages as stages
from minips.click_model import ClickModel
from minips.core.codec import Codec
from minips.core.config import Config
from minips.core.faults import Faults
from minips.core.local import Delays, LocalSteps
from minips.core.rows import Rows
from minips.core.shard import Shard
from minips.drivers.client import Client, Ref
from minips.drivers.connecting import connect, status
from minips.drivers.server import Server
from minips.engines import Engine, Processes, Threads
from minips.engines.evaluation import CsvLog, EarlyStopping, Eval
from minips.exchanges import PS, AllReduce, Exchange, HalvingDoubling, Hop, RingAllReduce, TreeAllReduce, TwoShot
from minips.problems import MLP, LinearRegression, Problem, SoftmaxRegression
from minips.results.checkpoints import Checkpoint
from minips.results.run import Progress, Run
from minips.results.trace import Trace
from minips.stage import (
    Array,
    Buffer,
    Frames,
    Stage,
    Tensors,
    announce,
    build,
    kinds,
    names,
    option,
    register,
    stage_class,
)
from minips.stages import aggregators as aggregators
from minips.stages import compressors as compressors
from minips.stages import consistency as consistency
from minips.stages import memories as memories
from minips.stages import optimizers as optimizers
from minips.stages import quantizers as quantizers
from minips.stages import schedules as schedules
from minips.stages import serializers as serializers
from minips.stages import shards as shards
from minips.stages import transports as transports
from minips.stages.aggregators import (
    Aggregator,
    Contribution,
    Krum,
    MajorityVote,
    Mean,
    Median,
    StalenessWeighted,
    TrimmedMean,
    WeightedMean,
)
from minips.stages.compressors import Blosc, Compressor, Gzip, Lz4, NoCompression, Zlib, Zstd
from minips.stages.consistency import ASP, BSP, SSP, Consistency, PullView
from minips.stages.memories import Delta, ErrorFeedback, Memory, MomentumCorrection, NoMemory
from minips.stages.optimizers import SGD, Adagrad, Adam, Optimizer
from minips.stages.quantizers.adaptive import Adaptive
from minips.stages.quantizers.base import Parts, Quantizer, part
from minips.stages.quantizers.casts import BFloat16, Exact, Float16
from minips.stages.quantizers.integers import QSGD, Ternary, TwoBit, Uniform
from minips.stages.quantizers.lowrank import PowerSGD
from minips.stages.quantizers.signs import Sign
from minips.stages.quantizers.sparse import RandomK, Threshold, TopK
from minips.stages.schedules import Cosine, Schedule, StepDecay, Warmup
from minips.stages.serializers import Json, MsgPack, Npy, Packet, Pickle, Protobuf, SafeTensors, Serializer
from minips.stages.shards import ByLabel, Contiguous, Shards, Shuffled
from minips.stages.transports import Grpc, Http, InProc, Link, Pipe, Pyro, SharedMemory, Tcp, Thrift, Transport, Zmq
from minips.training.byhand import work
from minips.training.sweep import RunTable, sensitivity, sweep
from minips.training.train import train

# The public names, in the groups of docs/reference.md.
__all__ = ["Checkpoint", "Codec", "Config", "Delays", "Faults", "LocalSteps", "sensitivity", "sweep", "train"]
__all__ += ["CsvLog", "EarlyStopping", "Eval", "Progress", "Run", "RunTable", "Trace"]
__all__ += ["Client", "Ref", "Rows", "Server", "Shard", "connect", "status", "work"]
__all__ += ["MLP", "ClickModel", "LinearRegression", "Problem", "SoftmaxRegression", "datasets"]
__all__ += ["Engine", "Hosts", "Processes", "Ray", "Simulated", "Star", "Threads", "Tree", "TwoRacks"]
__all__ += ["PS", "AllReduce", "Exchange", "HalvingDoubling", "Hop", "RingAllReduce", "TreeAllReduce", "TwoShot"]
__all__ += ["QSGD", "Adaptive", "BFloat16", "Exact", "Float16", "PowerSGD", "Quantizer"]
__all__ += ["RandomK", "Sign", "Ternary", "Threshold", "TopK", "TwoBit", "Uniform"]
__all__ += ["Delta", "ErrorFeedback", "Memory", "MomentumCorrection", "NoMemory"]
__all__ += ["Json", "MsgPack", "Npy", "Packet", "Pickle", "Protobuf", "SafeTensors", "Serializer"]
__all__ += ["Blosc", "Compressor", "Gzip", "Lz4", "NoCompression", "Zlib", "Zstd"]
__all__ += ["Grpc", "Http", "InProc", "Link", "Pipe", "Pyro", "SharedMemory", "Tcp", "Thrift", "Transport", "Zmq"]
__all__ += ["Aggregator", "Contribution", "Krum", "MajorityVote", "Mean", "Median", "StalenessWeighted", "TrimmedMean"]
__all__ += ["WeightedMean"]
__all__ += ["ByLabel", "Contiguous", "Shards", "Shuffled"]
__all__ += ["ASP", "BSP", "SSP", "Consistency", "PullView"]
__all__ += ["SGD", "Adagrad", "Adam", "Cosine", "Optimizer", "Schedule", "StepDecay", "Warmup"]
__all__ += ["Stage", "build", "kinds", "names", "option", "register"]
__all__ += ["Array", "Buffer", "Frames", "Parts", "Tensors", "part"]
_NAMESPACES = ["engines", "exchanges", "topologies", *stages.__all__]

for _topology in ("Star", "Ring", "Tree", "FatTree", "TwoRacks"):
    announce("topology", _topology.lower(), f"minips.machines.topology:{_topology}")


if TYPE_CHECKING:
    from minips import cost as cost
    from minips import lab as lab
    from minips import testing as testing
    from minips.engines import Hosts, Ray, Simulated
    from minips.machines import topology
    from minips.machines.topology import Star, Tree, TwoRacks

    topologies = topology
    __version__: str
else:  # hidden from type checkers, which would accept any name

    def __getattr__(name):
        if name == "lab":
            import_module("minips.lab").check_libraries()
        if name in ("cost", "lab", "testing"):
            return import_module(f"minips.{name}")
        if name == "topologies":
            return import_module("minips.machines.topology")
        if name in ("Hosts", "Ray", "Simulated"):
            return getattr(engines, name)
        if name in ("Star", "Tree", "TwoRacks"):
            return stage_class("topology", name.lower())
        if name == "__version__":  # reading the installed metadata takes longer than all imports above
            return import_module("importlib.metadata").version("minips")
        raise AttributeError(f"minips has no {name!r}")

    def __dir__():
        lab = ["lab"] if find_spec("ipywidgets") and find_spec("matplotlib") else []  # help() imports every listed name
        dunders = {name for name in globals() if name.startswith("__")} | {"__version__"}
        return sorted([*__all__, *_NAMESPACES, "cost", *lab, "testing", *dunders])
