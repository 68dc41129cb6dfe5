"""minips: a parameter server small enough to read in an afternoon, real enough to measure, open at every joint.

The public names, and nothing else. The submodules that are not always wanted (``cost``, ``lab``, ``testing``) are
imported when first used.
"""

from importlib import import_module
from typing import Any

from minips import datasets
from minips.problems import LinearRegression, Problem, SoftmaxRegression
from minips.runtime.client import Client, Ref, connect
from minips.runtime.codec import Codec
from minips.runtime.config import PS, Config, Delays
from minips.runtime.engines import Engine, Processes, Progress, Threads
from minips.runtime.server import Server
from minips.runtime.shard import Shard
from minips.runtime.trace import Trace
from minips.runtime.train import Run, train
from minips.stage import Stage, build, kinds, names, option, register
from minips.stages.aggregators import Aggregator, Contribution, Mean, Median
from minips.stages.compressors import Compressor, Lz4, NoCompression, Zlib
from minips.stages.consistency import ASP, BSP, SSP, Consistency
from minips.stages.memories import ErrorFeedback, Memory, NoMemory
from minips.stages.optimizers import SGD, Adagrad, Adam, Optimizer
from minips.stages.quantizers import Exact, Float16, Quantizer, Sign, TopK, Uniform
from minips.stages.serializers import Json, MsgPack, Packet, Pickle, Serializer
from minips.stages.transports import InProc, Link, Pipe, Tcp, Transport

__all__ = [
    "ASP",
    "BSP",
    "PS",
    "SGD",
    "SSP",
    "Adagrad",
    "Adam",
    "Aggregator",
    "Client",
    "Codec",
    "Compressor",
    "Config",
    "Consistency",
    "Contribution",
    "Delays",
    "Engine",
    "ErrorFeedback",
    "Exact",
    "Float16",
    "InProc",
    "Json",
    "LinearRegression",
    "Link",
    "Lz4",
    "Mean",
    "Median",
    "Memory",
    "MsgPack",
    "NoCompression",
    "NoMemory",
    "Optimizer",
    "Packet",
    "Pickle",
    "Pipe",
    "Problem",
    "Processes",
    "Progress",
    "Quantizer",
    "Ref",
    "Run",
    "Serializer",
    "Server",
    "Shard",
    "Sign",
    "SoftmaxRegression",
    "Stage",
    "Tcp",
    "Threads",
    "TopK",
    "Trace",
    "Transport",
    "Uniform",
    "Zlib",
    "build",
    "connect",
    "datasets",
    "kinds",
    "names",
    "option",
    "register",
    "train",
]

_LATER = ("bench", "cost", "lab", "testing")


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return import_module(f"minips.{name}")
    if name == "__version__":  # asking the installed metadata takes longer than importing all of the above
        return import_module("importlib.metadata").version("minips")
    raise AttributeError(f"minips has no {name!r}")
