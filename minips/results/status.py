"""A server's status, as a value that the server can send: the run's progress and its workers."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from minips.results.tables import fit_lines, fold
from minips.words import workers_of

_HEADINGS = ("worker", "connected", "clock", "last heard", "waits for", "MB received", "MB sent")


@dataclass(frozen=True)
class WorkerStatus:
    """The status of one worker, from the server's point of view."""

    worker: int
    connected: bool
    counts: bool
    """False once the worker has left or been silent for too long: the other workers do not wait for it."""
    clock: int
    """The number of completed pushes."""
    heard_s: float
    """Seconds since the server last heard from the worker or, if it never connected, since the server began."""
    waits_for: list[int]
    """The workers for which its push or pull is waiting."""
    received: int
    """Bytes of frames that the worker has sent to this server."""
    sent: int
    """Bytes of frames that this server has sent to the worker."""

    @classmethod
    def of(cls, worker: int, membership: Any) -> Self:
        """One worker's status, from a server's `minips.core.membership.Membership`."""
        member, shard = membership.members[worker], membership.shard
        waits_for = membership.awaited() if member.connections else []
        return cls(
            worker=worker,
            connected=bool(member.connections),
            counts=worker in shard.live,
            clock=shard.clocks[worker],
            heard_s=shard.now() - member.heard,
            waits_for=membership.behind(worker) if worker in membership.waiting else waits_for,
            received=member.received,
            sent=member.sent,
        )


@dataclass(frozen=True)
class Status:
    """The current state of one server of a run. ``print`` shows it as a table."""

    index: int
    servers: int
    workers: list[WorkerStatus]
    applied: int
    """The number of applied pushes."""
    updates: int | None
    """The number of applied pushes at which the run ends. Under BSP it excludes pushes that departed workers miss."""
    late: int
    duplicates: int
    version: int
    loss: float | None
    """The last training loss: the mean of all workers' losses in one clock."""
    seconds: float
    """Seconds since all workers were connected or, until then, since the first one was."""
    done: bool
    diverged: str | None
    stuck: str
    """The reason why no further round can be completed."""
    pushes_per_s: float | None = None
    """The rate of pushes between two requests; None after one request."""
    bytes_per_s: float | None = None
    """The rate of bytes in both directions between two requests; None after one request."""
    missing: int = 0
    """The number of pushes that are missing from BSP rounds because their workers had left."""
    awaited: list[int] = dataclasses.field(default_factory=list)
    """The workers that the run waits for before it begins."""

    @classmethod
    def of(cls, protocol: Any) -> Self:
        """The status of the server with this `minips.core.protocol.ServerProtocol`."""
        shard, membership, losses = protocol.shard, protocol.membership, protocol.losses
        loss, began_at = losses[-1][2] if losses else math.nan, membership.began_at
        return cls(
            index=protocol.index,
            servers=protocol.config.servers,
            workers=[WorkerStatus.of(worker, membership) for worker in range(shard.workers)],
            applied=shard.applied,
            updates=expected(shard),
            missing=shard.missing,
            awaited=membership.awaited(),
            late=shard.late,
            duplicates=shard.duplicates,
            version=shard.version,
            loss=loss if math.isfinite(loss) else None,
            seconds=0.0 if began_at is None else shard.now() - began_at,
            done=shard.done,
            diverged=shard.diverged,
            stuck=shard.stuck,
        )

    @classmethod
    def from_dict(cls, header: Mapping[str, Any]) -> Self:
        """Read the status in a server's answer, ignoring unknown fields. Raises TypeError if a field is missing."""

        def known_fields(kind: type[Status] | type[WorkerStatus], row: Mapping[str, Any]) -> dict[str, Any]:
            return {field.name: row[field.name] for field in dataclasses.fields(kind) if field.name in row}

        workers = [WorkerStatus(**known_fields(WorkerStatus, row)) for row in header.get("workers", [])]
        return cls(**known_fields(cls, header) | {"workers": workers})

    def to_dict(self) -> dict[str, Any]:
        """The status as plain values for JSON: without the rates, and without ``missing`` or ``awaited`` if empty."""
        omitted = {"pushes_per_s", "bytes_per_s", *(name for name in ("missing", "awaited") if not getattr(self, name))}
        return {name: value for name, value in dataclasses.asdict(self).items() if name not in omitted}

    def since(self, earlier: "Status", seconds: float) -> Self:
        """This status, with rates computed over the ``seconds`` since the ``earlier`` status."""
        pushes, nbytes = self.applied + self.late - earlier.applied - earlier.late, self._nbytes() - earlier._nbytes()
        return dataclasses.replace(self, pushes_per_s=pushes / seconds, bytes_per_s=nbytes / seconds)

    def _nbytes(self) -> int:
        return sum(worker.received + worker.sent for worker in self.workers)

    def __str__(self) -> str:
        """The status as a text table."""
        wanted = "" if self.updates is None else f" of {self.updates}"
        first = f"server {self.index} of {self.servers}: {self.applied}{wanted} updates in {self.seconds:.1f} s"
        loss = "" if self.loss is None else f", loss {self.loss:.4f}"
        dropped = f", {self.late} late" if self.late else ""
        missing = f", {self.missing} missing" if self.missing else ""
        lines = [f"{first}{loss}{dropped}{missing}, {self._state()}"]
        if self.pushes_per_s is not None and self.bytes_per_s is not None:
            lines += [f"{self.pushes_per_s:.1f} pushes/s, {self.bytes_per_s / 1e6:.3f} MB/s both ways"]
        return "\n".join(
            [*(part for line in lines for part in fold(line)), *fit_lines([_HEADINGS, *map(_cells, self.workers)])]
        )

    def _state(self) -> str:
        if self.diverged:
            return f"diverged: {self.diverged}"
        if self.done:
            return "done"
        if self.stuck:
            return f"stuck: {self.stuck}"
        return f"waiting for {workers_of(self.awaited)} to begin" if self.awaited else "running"


def expected(shard: Any) -> int | None:
    """The number of applied pushes at which this shard's run ends if no worker leaves or joins; None if it has no end.
    With rounds, it falls below ``updates`` once a worker has left.
    """
    updates: int | None = shard.updates
    if updates is None or shard.quorum is None:
        return updates
    rounds, there = -(-max(updates - shard.made, 0) // shard.quorum), len(shard.live) or shard.quorum
    return min(updates, int(shard.applied + rounds * min(shard.quorum, there)))


def _cells(status: WorkerStatus) -> tuple[str, ...]:
    """The cells of one worker's row in the table."""
    connected = "yes" if status.connected else "no"
    waits = ", ".join(f"worker {other}" for other in status.waits_for)
    gone = "" if status.counts else ", gone"
    return (
        f"{status.worker}",
        connected + gone,
        f"{status.clock}",
        f"{status.heard_s:.1f} s ago" if status.clock or status.received else "never",
        waits,
        f"{status.received / 1e6:.3f}",
        f"{status.sent / 1e6:.3f}",
    )
