"""Transports carry frames to a handler in another thread or process, and return its answer.

The contract is `Transport`. A transport carries only bytes, even within a process, so that measurements are comparable.
`link` adds a link's bandwidth and latency to any transport.
"""

from minips.stages.transports.base import Channel, Connection, Endpoint, Handler, Service, Transport, fresh_name
from minips.stages.transports.endpoints import PatientTransport, SocketListener, StreamTransport
from minips.stages.transports.framing import Framer
from minips.stages.transports.grpc import Grpc
from minips.stages.transports.http import Http
from minips.stages.transports.inbox import InboxListener, InboxWire
from minips.stages.transports.inproc import InProc
from minips.stages.transports.link import Link
from minips.stages.transports.pipe import Pipe
from minips.stages.transports.pyro import Pyro
from minips.stages.transports.shm import SharedMemory
from minips.stages.transports.sockets import SocketWire
from minips.stages.transports.tcp import Tcp
from minips.stages.transports.thrift import Thrift
from minips.stages.transports.wire import Listener, Wire
from minips.stages.transports.zmq import Zmq

__all__ = ["Channel", "Connection", "Endpoint", "Handler", "Link", "Service", "Transport", "fresh_name"]
__all__ += ["Framer", "InboxListener", "InboxWire", "Listener", "PatientTransport"]
__all__ += ["SocketListener", "SocketWire", "StreamTransport", "Wire"]
__all__ += ["Grpc", "Http", "InProc", "Pipe", "Pyro", "SharedMemory", "Tcp", "Thrift", "Zmq"]
