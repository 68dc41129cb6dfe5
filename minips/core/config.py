"""The full description of an experiment: `train` can repeat the experiment from it."""

import json
import math
from dataclasses import dataclass, fields, replace
from typing import Any

from minips.core.codec import Codec
from minips.core.exchange import PS, AllReduce, Exchange
from minips.core.local import Delays, LocalSteps
from minips.stage import StageField, Value, ValueField, option
from minips.stages.aggregators import Aggregator, Mean
from minips.stages.consistency import BSP, Consistency
from minips.stages.memories import MomentumCorrection
from minips.stages.optimizers import SGD, Optimizer
from minips.stages.shards import Contiguous, Shards
from minips.stages.transports import Link, Tcp, Transport

MOST_S = 1e6
"""The longest time-out: eleven days, in seconds. Some operating systems cannot wait longer."""


def check_seconds(what: str, seconds: object, more: str = "") -> None:
    """ValueError if ``seconds`` is not a valid time-out; ``more`` follows the limits in the error's text."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 < seconds <= MOST_S:
        raise ValueError(f"{what} takes seconds above 0 and at most {MOST_S:g}{more}; got {seconds!r}.")


@dataclass(frozen=True, repr=False)
class Config(Value):
    """One experiment. Give each stage as an object, as its name with or without fields, or as a dict of both.

    >>> Config(consistency="asp", workers=2).consistency
    ASP()
    >>> Config.from_dict(Config().to_dict()) == Config()
    True
    """

    _GROUPS = {  # the groups of options in the help, in order
        "What is sent": "push pull exchange transport",
        "Who waits and steps": "consistency aggregator optimizer steps epochs batch_size sampling shards accumulate "
        "local overlap seed",
        "The machine": "workers servers placement link delays timeout_s",
    }
    push: ValueField[Codec] = option(Codec(), "from worker to server, or to the next worker")
    pull: ValueField[Codec] = option(Codec(), "from server to worker")
    transport: StageField[Transport] = option(Tcp(), "how frames move")
    aggregator: StageField[Aggregator] = option(Mean(), "one gradient from many")
    consistency: StageField[Consistency] = option(BSP(), "who waits for whom")
    optimizer: StageField[Optimizer] = option(SGD(), "what the server does with a gradient")
    workers: int = option(4, "processes that compute gradients", minimum=1, step=1)
    servers: int = option(1, "processes that hold the parameters", minimum=1, step=1)
    placement: str = option(
        "ranges", "rows of a table: neighbours (ranges) or each servers-th (modulo)", choices=("ranges", "modulo")
    )
    steps: int = option(200, "clocks of all the workers; with local steps, each's gradient steps", minimum=1, step=1)
    epochs: int | None = option(None, "passes of each worker over its rows, in place of steps", minimum=1)
    batch_size: int | None = option(32, "rows of one gradient; None or too many: all the worker's rows", minimum=1)
    sampling: str = option(
        "batch",
        "a batch's rows, all different: from all of the worker's rows (batch), or those left in its pass (epoch)",
        choices=("batch", "epoch"),
    )
    shards: StageField[Shards] = option(Contiguous(), "how rows are divided among workers")
    accumulate: int = option(1, "batches that are averaged before a push", minimum=1, step=1)
    local: ValueField[LocalSteps | None] = option(None, "a worker's own steps between two exchanges; None: one")
    overlap: bool = option(False, "compute the next gradient while the last one travels")
    link: ValueField[Link | None] = option(None, "a slow network around the transport; None: the bare transport")
    delays: ValueField[Delays | None] = option(None, "slower workers; None: no delay")
    exchange: StageField[Exchange] = option(PS(), "how gradients are combined: at servers, or by an all-reduce")
    seed: int = option(0, "of batches, delays and random quantizers", minimum=0, step=1)
    timeout_s: float = option(60.0, "the longest that a message waits for others", above=0, maximum=MOST_S, unit="s")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs is not None and self.steps != type(self).steps:
            raise ValueError(
                f"Config takes either steps or epochs; got steps={self.steps} and epochs={self.epochs}. "
                "steps=Config.steps resets the steps."
            )
        if self.local and self.epochs is None:
            self.local.check("Config.steps", self.steps)
        together = self.consistency.quorum(self.workers) or 1
        if together < self.aggregator.least:
            raise ValueError(
                f"{self.aggregator!r} needs at least {self.aggregator.least} contributions at once, and "
                f"{self.consistency!r} with {self.workers} workers combines {together}. Use more workers under BSP."
            )
        if self.aggregator.weighs and self.consistency.quorum(self.workers) is None:
            raise ValueError(
                f"{self.aggregator!r} weighs the pushes of a round; {self.consistency!r} has none. Use BSP."
            )
        for worker in self.delays.slow if self.delays else ():
            if worker >= self.workers:
                raise ValueError(f"Delays.slow names worker {worker}, but workers are 0 to {self.workers - 1} only.")
        if isinstance(self.exchange, AllReduce):
            self._check_all_reduce(self.exchange)

    def _check_all_reduce(self, exchange: AllReduce) -> None:
        """ValueError if a field has a value that only servers support."""
        exchange.schedule(0, self.workers)
        wanted = {"consistency": BSP(), "aggregator": Mean(), "servers": 1, "pull": Codec()}
        for field, only in wanted.items():
            got = getattr(self, field)
            if got != only:
                raise ValueError(
                    f"{exchange!r} adds up the gradients of all the workers at every step, without a server: it takes "
                    f"{field}={only!r} only, got {got!r}. Use exchange=PS() for that."
                )
        if isinstance(self.push.memory, MomentumCorrection):
            raise ValueError(
                f"{exchange!r} quantizes partial sums at each hop, so {self.push.memory!r} would add its momentum "
                "again and again. Use ErrorFeedback(), and the optimizer's momentum."
            )

    @property
    def local_steps(self) -> int:
        """The number of gradient steps of a worker between two exchanges: 1 without `LocalSteps`."""
        return self.local.steps if self.local else 1

    @property
    def clocks(self) -> int:
        """The run's number of exchanges, each a clock of all the workers. The run applies workers × clocks pushes."""
        return self.steps // self.local_steps

    def for_rows(self, rows: int) -> "Config":
        """This config with ``steps`` in place of ``epochs``, for a problem with this number of rows.

        The worker with the most rows reads all of them in each epoch; its last batch may be smaller. The number of
        steps is rounded up to whole exchanges.

        >>> Config(workers=4, epochs=5, batch_size=32).for_rows(1000).steps
        40
        """
        if self.epochs is None:
            return self
        shard = -(-rows // self.workers)
        batches = self.epochs * -(-shard // min(self.batch_size or shard, shard))
        each = self.accumulate * self.local_steps
        return replace(self, steps=-(-batches // each) * self.local_steps, epochs=None)

    def public(self) -> dict[str, Any]:
        """This config as plain values for a server's workers. It omits the transport's fields that concern only one
        machine, such as the paths of certificates.
        """
        transport: Any = self.transport
        private = {field.name: field.default for field in fields(transport) if field.metadata.get("operator")}
        public = self.with_({f"transport.{name}": default for name, default in private.items()})
        return dict(json.loads(json.dumps(public.to_dict())))  # keys are text, as every serializer takes them

    def shaped_transport(self, most: float = math.inf) -> Transport:
        """The transport for one process and for messages of up to ``most`` bytes; it emulates the link, if given."""
        transport: Any = self.transport
        if getattr(transport, "max_message_bytes", 0) > most:
            transport = replace(transport, max_message_bytes=most)
        return self.link.around(transport) if self.link else transport
