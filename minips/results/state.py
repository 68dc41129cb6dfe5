"""The part of a saved run from which it resumes: a `SavedState`. Parameters and results are saved separately.

A state is plain: dicts, lists, numbers and arrays, in a file (`minips.results.saved`), a report or a message. Each dict
with fixed keys is a part. A class below lists the keys, and names the class or function that makes such a part and
resumes from it. A single server's part can be saved and restored. A lost worker begins anew: its part, and the servers'
links to it, are None.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict, get_args, get_type_hints, is_typeddict


class CodecState(TypedDict):
    """One end of a codec (`Encoder`, `Decoder`)."""

    memory: dict[str, dict[str, Any]]  # for each tensor
    draws: NotRequired[dict[str, Any]]  # an encoder's random generator


class LinkState(TypedDict):
    """One end of the link between a worker and a server (`WorkerRecord`, `ServerRecord`)."""

    encoder: CodecState
    decoder: CodecState
    version: NotRequired[int]  # at the worker: of the parameters pulled last
    inner: NotRequired[dict[int, dict[str, Any]]]  # at the worker, of the first server: local steps (`Inner`)


class ExactState(TypedDict):
    """Where each worker is, in the state of a server that continues the same run (`Shard`, in a checkpoint)."""

    run: str
    diverged: str | None
    pause_at: float
    counted: int
    late: int
    duplicates: int
    live: list[int]
    clocks: list[int]
    missed: list[list[int]]
    dropped: list[list[int]]
    over: list[int]
    staleness: dict[int, int]


class MemberRecord(TypedDict):
    """A worker's session, in the checkpoint of a server (`Membership`)."""

    state: str
    secret: str
    rows: float
    received: int
    sent: int


class ShardState(TypedDict):
    """A shard without its parameters (`Shard`)."""

    version: int
    rounds: int
    applied: int
    made: NotRequired[int]  # earlier files lack it; there it equals ``applied``
    clocks: list[int]
    recent_losses: list[float]
    policy_state: dict[str, Any]
    held: NotRequired[list[Any]]  # pushes that wait, each with the fields of `Contribution`; earlier files lack it
    optimizer: list[dict[str, Any]]  # for each block of the parameters
    exact: NotRequired[ExactState]  # in a checkpoint


class LeftState(TypedDict):
    """What a worker leaves with one server as it says goodbye: that server's part of its state (`cut_state`)."""

    link: LinkState
    seen: list[Any] | None


class ServerState(TypedDict):
    """A server (`ServerProtocol`)."""

    shard: ShardState
    links: list[LinkState | None]  # to each worker
    encoder: CodecState  # of answers that all workers share
    left: NotRequired[list[LeftState | None]]  # not in a file: for a server started by hand, whose workers fetch it
    members: NotRequired[list[MemberRecord]]  # in a checkpoint, as the next one
    resumptions: NotRequired[list[str]]


class WorkerState(TypedDict):
    """A worker of servers (`worker_state`), or of an all-reduce (`Replica`)."""

    links: NotRequired[list[LinkState]]  # to each server
    hops: NotRequired[dict[str, list[Any]]]  # of an all-reduce (`AllReduceState`)
    seen: list[Any] | None  # the fields of `Seen`, unless the worker gets the same parameters again
    inner: NotRequired[dict[int, dict[str, Any]]]  # with an all-reduce: local steps (`Inner`)
    replica: NotRequired[ShardState]  # with an all-reduce


class SavedState(TypedDict):
    """A run: its servers, none with an all-reduce, and its workers."""

    servers: list[ServerState]
    workers: list[WorkerState | None]
    index: NotRequired[int]  # of the only server, if the run is that of one server of several


def check_state(kind: Any, value: Any, where: str) -> Any:
    """Return this value, a part of this ``kind`` or a list of parts. ValueError, with the path, if a key is missing."""
    for key, inner in get_type_hints(kind).items() if is_typeddict(kind) else ():
        if isinstance(value, Mapping) and key in value:
            check_state(inner, value[key], f"{where}/{key}")
        elif key in kind.__required_keys__:
            raise ValueError(f"This is not from a saved run: {where} lacks {key!r}.")
    for inner in () if is_typeddict(kind) or value is None else get_args(kind)[:1]:
        for item in value if isinstance(value, list) else [value]:
            check_state(inner, item, where)
    return value


def state_of(servers: list[ServerState], workers: Sequence[WorkerState | None]) -> SavedState:
    """A run's state, made from its parties' states. A lost worker begins anew, so the servers forget its state.

    The servers also forget a waiting push that reached another server only after that server had ended. Its worker
    pushes again; otherwise two workers could each wait at one server for the other's push.
    """
    shards = [server["shard"] for server in servers]
    waiting = [{(worker, clock) for worker, clock, *_ in shard["held"]} for shard in shards]
    for shard in shards:
        shard["held"] = [
            push
            for push in shard["held"]
            if all(push[:2] in held or push[1] < other["rounds"] for other, held in zip(shards, waiting, strict=True))
        ]
    for server in servers:
        server["links"] = [link if worker else None for link, worker in zip(server["links"], workers, strict=True)]
    return SavedState(servers=servers, workers=[*workers])
