"""The faults that a run is to survive: which party dies or pauses, and when; cut connections and late messages."""

from dataclasses import dataclass

from minips.core.config import Config
from minips.core.exchange import PS
from minips.stage import Value, option
from minips.words import suggestion


@dataclass(frozen=True, repr=False)
class Faults(Value):
    """Faults that are made on purpose in a run: ``train(faults=)``. A party has a name such as ``worker 1``.

    A worker's clock counts its pushes: it dies, or pauses, before it sends the push of that clock. A server's clock
    counts those of all the workers: it dies once it has applied so many. A party that is started again lives on. A
    connection that holds loses, doubles and reorders nothing. If it is cut behind a message, what is behind the cut is
    sent again over a new connection.

    >>> Faults(kill={"worker 1": 20}, cut=0.01, pause={"server 0": (35, 0.5)})
    Faults(kill={'worker 1': 20}, cut=0.01, pause={'server 0': (35, 0.5)})
    """

    kill: dict[str, int] = option(dict, "the clock at which each of these parties is killed")
    cut: float = option(
        0.0, "the probability, for each message, that its connection breaks behind it", minimum=0, below=1
    )
    delay_s: float = option(0.0, "the mean of the exponential time added to each message", minimum=0, unit="s")
    pause: dict[str, tuple[int, float]] = option(
        dict, "the clock at which each of these parties pauses, and its seconds"
    )
    seed: int = option(0, "the seed of the cuts and the delays", minimum=0, step=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        for who, clock in self.kill.items():
            if clock < 0:
                raise ValueError(f"Faults.kill takes a party and its clock, at least 0; got {who!r}: {clock}.")
        for who, (clock, seconds) in self.pause.items():
            if clock < 0 or not 0 < seconds < float("inf"):
                words = f"Faults.pause takes a party, its clock, at least 0, and its seconds, above 0; got {who!r}:"
                raise ValueError(f"{words} ({clock}, {seconds}).")

    @property
    def kinds(self) -> list[str]:
        """The kinds of faults that are to be made."""
        return [name for name in ("kill", "cut", "delay_s", "pause") if getattr(self, name)]

    def check(self, config: Config) -> None:
        """ValueError if a fault is for a party that a run of ``config`` lacks, or if nothing would connect again."""
        servers = config.servers if isinstance(config.exchange, PS) else 0
        parties = [f"worker {rank}" for rank in range(config.workers)] + [f"server {i}" for i in range(servers)]
        for name in ("kill", "pause"):
            for who in getattr(self, name):
                if who not in parties:
                    raise ValueError(f"Faults.{name} names {who!r}, which this run lacks. {suggestion(who, parties)}")
        if self.cut and not servers:
            raise ValueError(f"Faults.cut needs servers: {config.exchange!r} ends when a connection breaks. Use kill.")
