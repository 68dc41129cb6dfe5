"""Transports: how frames reach a handler in another thread or process, and how its answer comes back.

The contract is `Transport`. A transport carries bytes alone, the in-process one too, so that measurements compare like
with like. `link` shapes bandwidth and latency around any of them.
"""

from minips.stages.transports.base import Channel as Channel
from minips.stages.transports.base import Connection as Connection
from minips.stages.transports.base import Endpoint as Endpoint
from minips.stages.transports.base import Handler as Handler
from minips.stages.transports.base import Service as Service
from minips.stages.transports.base import Transport as Transport
from minips.stages.transports.grpc import Grpc as Grpc
from minips.stages.transports.http import Http as Http
from minips.stages.transports.inproc import InProc as InProc
from minips.stages.transports.link import Link as Link
from minips.stages.transports.pipe import Pipe as Pipe
from minips.stages.transports.pyro import Pyro as Pyro
from minips.stages.transports.shm import SharedMemory as SharedMemory
from minips.stages.transports.tcp import Tcp as Tcp
from minips.stages.transports.thrift import Thrift as Thrift
from minips.stages.transports.zmq import Zmq as Zmq
