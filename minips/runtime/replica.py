"""A worker's own copy of the parameters, where gradients meet by an all-reduce and every worker makes the same step."""

import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from minips.runtime.codec import check_finite
from minips.runtime.config import Config
from minips.runtime.partition import partition
from minips.runtime.trace import Trace
from minips.stage import Tensors

SAMPLES = 8
SAMPLE_BYTES = 2**23
"""How many steps of a run, spread evenly, a replica keeps the gradients of, and how many bytes of them at most (but one
step's in any case): from them the error of the exchange is measured after the run, when it slows nobody down.
"""


class Replica:
    """Parameters, the optimizer's state, and what a run wants to know at its end. ``version`` counts the steps made."""

    def __init__(self, params: Tensors, config: Config, rank: int) -> None:
        self.params = {name: x.copy() for name, x in params.items()}
        self.version = 0
        self.losses: list[tuple[float, int, float]] = []
        self.staleness: Counter[int] = Counter()
        self.changed_at = time.monotonic()
        self.trace = Trace(f"worker {rank}")
        self._config, self._rank, self._state = config, rank, {}  # type: Config, int, dict[str, Any]
        count = max(1, min(SAMPLES, SAMPLE_BYTES // max(1, sum(x.nbytes for x in params.values()))))
        self._sampled = {config.steps * sample // count for sample in range(count)}
        self._samples: list[tuple[Tensors, Tensors]] = []

    def apply(self, gradients: Tensors, mean: Tensors, loss: float, read: int) -> None:
        """One step along ``mean``, in place. ``gradients`` and ``loss`` are this worker's own, computed from the
        parameters of version ``read``.
        """
        check_finite(mean, "The mean gradient of")
        if self.version in self._sampled:
            first = self._rank == 0
            self._samples.append((gradients, {name: g.copy() for name, g in mean.items()} if first else {}))
        self._config.optimizer.step(self.params, mean, self._state)
        self.staleness[self.version - read] += 1
        self.version, self.changed_at = self.version + 1, time.monotonic()
        self.losses.append((self.changed_at, self.version, loss))

    def report(self) -> dict[str, Any]:
        """What a run keeps of this replica: one brings the parameters home, all bring their digest."""
        counts = {"applied": self.version, "late": 0, "staleness": self.staleness, "grants": []}
        times = {"losses": self.losses, "changed_at": self.changed_at, "events": []}
        params = {"params": self.params, "layout": partition(self.params, 1)[0]} if self._rank == 0 else {}
        return {**params, **counts, **times, "digest": self._digest(), "samples": self._samples}

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for name, p in self.params.items():
            digest.update(f"{name} {p.dtype} {p.shape}".encode())
            digest.update(p.tobytes())
        return digest.hexdigest()


def check_same(digests: Sequence[str]) -> None:
    """RuntimeError where the replicas, by rank, are not all the same."""
    for rank, digest in enumerate(digests):
        if digest != digests[0]:
            raise RuntimeError(
                f"The replicas differ at the end of the run: worker {rank} does not have the parameters of worker 0. "
                "An optimizer, and the decoding of a quantizer, must do the same with the same input at every worker."
            )


def requantization_error(samples: Sequence[Sequence[tuple[Tensors, Tensors]]]) -> float | None:
    """How far the exchanged means are from the exact ones: ``|mean − exact| / |exact|`` over all tensors, averaged over
    the sampled steps. ``samples`` has a list for each worker, the first of which holds the means; None without any.
    """
    errors = []
    for step in zip(*samples, strict=True):
        off = size = 0.0
        for name, got in step[0][1].items():
            exact = np.mean([gradients[name] for gradients, _ in step], axis=0, dtype=np.float64)
            off += float(np.sum((got - exact) ** 2))
            size += float(np.sum(exact**2))
        errors.append((off / size) ** 0.5 if size else float(off > 0))
    return sum(errors) / len(errors) if errors else None
