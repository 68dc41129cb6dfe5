"""The exercises of "Enter the race"."""

from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, is_own, refuse_if
from minips_course.arrays import copied, drawn_like, drawn_tensors


@asks(
    "race.1",
    "Two limits are kept already. Which rule of lesson 18 bears one liar, and what does it need to compare?",
    "A rule for garbage compares the pushes of a round, so ASP must go. But a round that waits for all eight waits for "
    "the straggler: see lesson 16 on backup workers.",
    "Write aggregator=ps.Median(), and consistency=ps.BSP(backup=1). The rest may stay. Another way: ps.TrimmedMean.",
)
def entry(text: Any, rng: np.random.Generator) -> str:
    """Write an entry that keeps the limits of time and bytes, with honest workers and beside garbage."""
    from minips.racing import judge  # a track needs networkx
    from minips_course.race import trial

    refuse_if(not isinstance(text, str), f"Expected the text of an entry, got {text!r:.80}.")
    salt, told = str(int(rng.integers(1_000_000))), []
    with case("On new seeds:"):
        for where, track in trial.QUICK.items():
            try:
                verdict = judge(track, text, salt=salt, hopeless=trial.hopeless)
            except (ValueError, TypeError, RuntimeError, TimeoutError) as error:
                raise Refused(f"no place: {error}") from None
            faults = trial.broken(verdict, where)
            refuse_if(bool(faults), " And ".join(faults))
            told.append(f"{where} {verdict.seconds:.3f} virtual s and {verdict.nbytes / 1e3:.0f} kB")
    return f"It keeps all limits: {', '.join(told)}."


@asks(
    "race.2",
    "The length of a push is the root of the sum of all its squares, over all tensors together.",
    "A push that is too long is multiplied by most / length. A shorter one stays. Then take the mean.",
    "Make a new dictionary for each contribution: {name: scale * g for name, g in one.gradients.items()}. Keep the "
    "dtype: use np.float32, or astype.",
)
def bounded(cls: Any, rng: np.random.Generator) -> str:
    """Write a rule that shortens long pushes, and takes the mean."""
    refuse_if(not isinstance(cls, type), f"Expected your class Bounded, got {cls!r}.")
    is_own(cls(), ps.Aggregator, "Bounded")
    for turn in range(12):
        most, dtype = float(rng.uniform(0.5, 5)), ("f4", "f8")[turn % 2]
        like = drawn_tensors(rng, int(rng.integers(1, 5)), dtype)
        pushes = [drawn_like(like, rng) for _ in range(int(rng.integers(2, 8)) if turn % 3 else 1)]
        lengths = rng.permutation([0.2, 40.0, *rng.uniform(0.1, 30, 8)])[: len(pushes)]
        for push, length in zip(pushes, lengths, strict=True):
            scale = most * length / (_length(push) or 1.0)
            push.update({name: np.asarray(scale * x, dtype) for name, x in push.items()})
        kept = [copied(push) for push in pushes]
        with case(f"Pushes: {len(pushes)}, tensors in each: {len(like)}, {dtype}, most = {most:.2f}:"):
            got = cls(most=most).combine([ps.Contribution(i, 0, 0, push) for i, push in enumerate(pushes)])
            refuse_if(not isinstance(got, dict) or {*got} != {*like}, f"it returned {got!r:.80}.")
            for push, before in zip(pushes, kept, strict=True):
                changed = [name for name, x in before.items() if not np.array_equal(x, push[name])]
                refuse_if(bool(changed), f"it changed a worker's {changed}.")
            for name, x in like.items():
                wanted = sum(min(1.0, most / _length(push)) * push[name].astype(float) for push in kept) / len(kept)
                told = np.asarray(got[name])
                refuse_if(told.shape != x.shape, f"{name!r} has shape {told.shape}, expected {x.shape}.")
                refuse_if(told.dtype != x.dtype, f"{name!r} is {told.dtype}, expected {x.dtype}.")
                off = float(np.abs(told - wanted).max(initial=0.0))
                refuse_if(not off <= 1e-4 * most, f"{name!r} is up to {off:.2g} off.")
    zero = cls(most=1.0).combine([ps.Contribution(0, 0, 0, {"w": np.zeros(3, np.float32)})])
    refuse_if(not np.array_equal(zero["w"], np.zeros(3)), f"A push of zeros became {zero['w']}.")
    return "No push is longer than the bound, and shorter ones are untouched: one push or several, any tensors."


def _length(push: Any) -> float:
    return float(np.sqrt(sum(np.square(x, dtype=float).sum() for x in push.values())))
