"""The contract of shards: each row belongs to exactly one worker, and the same draws give the same shards."""

import copy

import numpy as np

from minips.stage import Array
from minips.stages.shards import Shards
from minips.testing.base import described, require, same_bits, strictly, unwritable, without_global_draws
from minips.testing.stages import check_stage

TARGETS: dict[str, Array] = {
    "class numbers": np.arange(40) * 7 % 5,
    "values": np.sin(np.arange(23, dtype=np.float32)),
    "texts": np.array(["no", "yes", "no", "perhaps"] * 3),
    "two columns": np.stack([np.arange(9) % 2, np.arange(9)], axis=1),
    "one row": np.zeros(1),
}


def check_shards(shards: Shards) -> None:
    """Check the contract of shards: each row occurs once, every worker has a row if the rows suffice, the same
    draws give the same shards, and the targets are unchanged.
    """
    check_stage(shards)
    for what, y in TARGETS.items():
        for workers in (1, 2, 3, 8):
            with strictly(f"{shards!r}.split({what}, {described(y)}, workers={workers})"):
                _check_split(shards, y, workers)
                with without_global_draws("split"):  # libraries that draw on import have drawn by now
                    shards.split(unwritable(y), workers, np.random.default_rng(5))


def _check_split(shards: Shards, y: Array, workers: int) -> None:
    first, again = ([*shards.split(unwritable(y), workers, np.random.default_rng(5))] for _ in range(2))
    counts = [len(part) for part in first]
    other = np.random.default_rng(6)
    then = copy.deepcopy(first)
    [*shards.split(unwritable(y[::-1]), workers, other)]
    require(len(first) == workers, f"it returned {len(first)} index arrays for {workers} workers.")
    for part in first:
        whole = isinstance(part, np.ndarray) and part.dtype.kind in "iu" and part.ndim == 1
        require(whole, f"a shard must be a one-dimensional array of row numbers; got {part!r}.")
    kept = all(same_bits(a, b) for a, b in zip(first, then, strict=True))
    require(kept, "a later split wrote into the row numbers of an earlier one; make new arrays.")
    once = np.array_equal(np.sort(np.concatenate(first)), np.arange(len(y)))
    require(once, f"shards of {counts} rows do not hold each of {len(y)} rows once.")
    require(len(y) < workers or all(counts), f"a worker has no rows: the shards have {counts}.")
    same = all(same_bits(a, b) for a, b in zip(first, again, strict=True))
    require(same, "the shards differ for the same draws; draw only from rng.")
