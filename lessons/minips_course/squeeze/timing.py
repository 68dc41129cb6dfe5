"""Measures what compressors leave of several kinds of bytes, and how long they take."""

from collections.abc import Mapping
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import minips as ps
from minips.stage import Array

Floats = NDArray[np.float64]


class Squeezed(NamedTuple):
    """One kind of bytes with one compressor: the bytes before and after, and the seconds of each repeat."""

    before: int
    after: int
    there: Floats
    """The seconds to compress."""
    back: Floats
    """The seconds to decompress."""

    @property
    def left(self) -> float:
        """The share of the bytes that is left."""
        return self.after / self.before

    @property
    def saved(self) -> int:
        """The bits that are saved; 0 if the bytes become more."""
        return 8 * max(self.before - self.after, 0)

    @property
    def spent(self) -> Floats:
        """The seconds of each repeat, at both ends."""
        return self.there + self.back


def kinds(gradient: Array) -> dict[str, Array]:
    """Return arrays of several kinds that a worker may send for a gradient, by name."""
    rng, top = np.random.default_rng(0), ps.TopK(fraction=0.01)
    return {
        "float32": gradient,
        "1 % of it, zeros between": top.decode(top.encode(gradient, rng)),
        "8-bit codes": ps.Uniform(bits=8).encode(gradient, rng)["codes"],
        "4-bit codes": ps.Uniform(bits=4).encode(gradient, rng)["codes"],
        "1-bit signs": ps.Sign().encode(gradient, rng)["bits"],
    }


def measure(
    arrays: Mapping[str, Array], compressors: Mapping[str, ps.Compressor], repeats: int = 15
) -> dict[tuple[str, str], Squeezed]:
    """Compress and decompress each array with each compressor. The compressors take turns, so that a busy moment of
    the machine affects all of them.
    """
    found = {}
    for kind, array in arrays.items():
        frame, whole = array.reshape(-1).view(np.uint8).data, array.tobytes()
        spent, left = np.empty((len(compressors), 2, repeats)), {}
        for turn in range(repeats):
            for number, (name, one) in enumerate(compressors.items()):
                began, packed, there = perf_counter(), one.compress(frame), perf_counter()
                back, end = one.decompress(packed, limit=len(frame)), perf_counter()
                if bytes(back) != whole:
                    raise ValueError(f"{name} changed the {kind}.")
                left[name], spent[number, :, turn] = len(packed), (there - began, end - there)
        for name, seconds in zip(compressors, spent, strict=True):
            found[kind, name] = Squeezed(len(frame), left[name], *seconds)
    return found


def shares(measured: Mapping[tuple[str, str], Squeezed], *kinds: str) -> list[dict[str, float]]:
    """Return, for each of these kinds of bytes, the share that each compressor leaves."""
    return [{name: one.left for (what, name), one in measured.items() if what == kind} for kind in kinds]


def commonest(gradient: Array) -> float:
    """Return the share of the most frequent one among a gradient's 8-bit codes."""
    codes = kinds(gradient)["8-bit codes"].reshape(-1)
    return float(np.bincount(codes).max() / codes.size)


def ratio_of_steps(plain: ps.Run, other: ps.Run) -> float:
    """Return the median time of a step in the second run, divided by that in the first."""
    first, second = (np.median(np.diff([seconds for seconds, _, _ in run.losses])) for run in (plain, other))
    return float(second / first)


def table(measured: Mapping[tuple[str, str], Squeezed], even: Mapping[tuple[str, str], Floats]) -> str:
    """Return a row for each compressor: what it leaves of the codes and of the floats, and below which bandwidth it
    pays, in Mbit/s.
    """
    rows = [f"{'compressor':10}{'codes: left':>13}{'pays below':>13}{'floats: left':>15}{'pays below':>13}"]
    for name in dict.fromkeys(name for _, name in measured):
        codes, floats = ("8-bit codes", name), ("float32", name)
        rows.append(
            f"{name:10}{measured[codes].left:13.3f}{even[codes][1]:13,.0f}"
            f"{measured[floats].left:15.3f}{even[floats][1]:13,.0f}"
        )
    return "\n".join(rows)
