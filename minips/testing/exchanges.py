"""The contract of exchanges: each sum has each gradient once, errors are in bounds, bytes are as predicted."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from minips.core.codec import Codec
from minips.core.config import Config
from minips.core.exchange import AllReduce, Exchange
from minips.core.reduction import AllReduceState, rounds
from minips.cost.traffic import FixedGradients, count_bytes
from minips.engines import Threads
from minips.results.trace import UNTIMED
from minips.stage import Tensors
from minips.stages.quantizers import QSGD, Exact, Quantizer, Uniform
from minips.testing.base import require, same_bits, strictly
from minips.testing.policies import tensors
from minips.testing.stages import check_stage
from minips.training.progress import Wait, showing
from minips.training.train import train
from minips.words import join_names


@showing(None, first=Wait("checking an exchange"))
def check_exchange(exchange: Exchange, workers: Sequence[int] = (2, 3, 4, 5, 8)) -> None:
    """Check an exchange against its contract; for an all-reduce, check all messages, sums and bytes.

    The exchange may raise ValueError for some of these numbers of ``workers``, but not for all.
    """
    check_stage(exchange)
    if not isinstance(exchange, AllReduce):
        return
    able = []
    for count in workers:
        try:
            config = Config(exchange=exchange, workers=count, steps=3, transport="inproc")
        except ValueError:
            continue
        able.append(count)
        with strictly(f"{exchange!r} among {count} workers"):
            _check_counts(config, exchange.pieces(count))
            for quantizer in (Exact(), Uniform(bits=8), QSGD()):
                _check_sums(replace(config, push=Codec(quantizer)), quantizer)
            like = tensors(0, np.float32)
            predicted = count_bytes(config, like, like, rows=1).sent
            sent = train(FixedGradients(like, like, count), config, engine=Threads()).bytes_sent
            require(sent == predicted, f"a run of 3 steps sends {sent} bytes, and {predicted} are predicted.")
    require(able, f"{exchange!r} has no schedule for {join_names([*map(str, workers)])} workers.")


def _check_counts(config: Config, pieces: int) -> None:
    """Check that a sum contains each gradient once: rank r adds 4^r, so digit r in base 4 counts its gradient."""
    ranks = range(config.workers)
    for rank, mean in enumerate(_means(config, [{"w": np.full(pieces, 4.0**rank)} for rank in ranks])):
        for piece, total in enumerate(mean["w"] * config.workers):
            counts = [int(total) // 4**other % 4 for other in ranks]
            has = " + ".join(f"{count} g{other}" for other, count in enumerate(counts))
            require(set(counts) == {1}, f"rank {rank} ends with {has} in piece {piece}, g being the ranks' gradients.")


def _check_sums(config: Config, quantizer: Quantizer) -> None:
    """Check each piece's error: a sum has the errors of n − 1 messages and of the final one, the mean 1/n of that."""
    gradients = [tensors(rank, np.float32) for rank in range(config.workers)]
    means = _means(config, gradients)
    for name, x in means[0].items():
        require(all(same_bits(x, mean[name]) for mean in means), f"{quantizer!r} gives the ranks different {name!r}.")
        most = 1.1 * np.sum([np.abs(own[name]) for own in gradients], axis=0).max(initial=0)  # with a margin for errors
        bound = quantizer.error_bound(np.resize(np.array([-most, most], x.dtype), x.shape)) or 0.0
        error = np.abs(x - np.mean([own[name] for own in gradients], axis=0)).max(initial=0)
        require(error <= bound + 1e-6 * most, f"{quantizer!r} errs by {error:.3g} in {name!r}, more than {bound:.3g}.")


def _means(config: Config, gradients: list[Tensors]) -> list[Tensors]:
    """Return the means at all ranks after each rank has executed its schedule."""
    ranks = [AllReduceState(config, rank, own, UNTIMED) for rank, own in enumerate(gradients)]
    lengths = {len(one.hops) for one in ranks}
    require(len(lengths) == 1, f"the ranks have {lengths} hops; all need the same number: Hop() does nothing.")
    for one, own in zip(ranks, gradients, strict=True):
        one.begin(0, own)
    for groups in zip(*(rounds(one.hops, one.direct) for one in ranks), strict=True):
        hops = [(number, rank, hop) for rank, group in enumerate(groups) for number, hop in group]
        sent = {(n, rank, hop.to): ranks[rank].outgoing(n) for n, rank, hop in hops if hop.to is not None}
        for number, rank, hop in hops:
            if hop.source is not None:
                frames = sent.pop((number, hop.source, rank), [])
                require(frames, f"in hop {number} rank {rank} waits for rank {hop.source}, which does not send to it.")
                ranks[rank].incoming(number, frames)
        require(not sent, f"no rank receives the messages sent at (hop, from, to): {sorted(map(str, sent))}.")
    return [one.mean() for one in ranks]
