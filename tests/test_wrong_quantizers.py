"""Wrong quantizers, each a plausible mistake, and the words with which `ps.testing.check` refuses it."""

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from wrong import Wrong, refuse

import minips as ps
from minips.stages.quantizers.base import part, shape_tag, zeros_for
from minips.testing.draws import check_draws

WRONG = Wrong()
refused = WRONG.refused


@dataclass(frozen=True)
class Steps(ps.Quantizer):
    """Multiples of a step, which travels: a right one, of which many of the wrong ones are made."""

    name = "steps"
    step: float = ps.option(1e-2, "distance of two levels", above=0)

    def encode(self, x, rng):
        return {"codes": self.codes(x, rng), "step": np.array([self.step]), "like": shape_tag(x)}

    def codes(self, x, rng):
        return np.asarray(np.clip(np.rint(x.astype(float) / self.step), -(2**31), 2**31 - 1), "i4")

    def decode(self, parts):
        x, step = zeros_for(parts), part(parts, "step", float, (1,))
        x[...] = part(parts, "codes", np.int32, x.shape) * step[0]
        if not np.isfinite(x).all():
            raise ValueError("The step is not finite.")
        return x

    def error_bound(self, x):
        return max(self.step / 2, float(np.abs(x).max(initial=0)) - (2**31 - 1) * self.step)


@pytest.mark.parametrize("step", [1e-2, 0.5, 3.0])
def test_the_right_one_is_accepted_without_a_warning(registry, step):
    ps.testing.check(ps.register(Steps)(step=step))


@refused(r"decode reads the quantizer's own fields\..* decoded by one with another 'step'.*other values came out")
class StepOfTheReceiver(Steps):
    def decode(self, parts):
        return super().decode(parts | {"step": np.array([self.step])})


@refused(r"decode reads the quantizer's own fields\..* with another 'factor'")
class HalfOfItTravels(Steps):
    factor: float = ps.option(1.0, "of all values", minimum=1, maximum=2)

    def encode(self, x, rng):
        return super().encode(x * x.dtype.type(self.factor), rng)

    def decode(self, parts):
        return np.asarray(super().decode(parts) / part(parts, "like").dtype.type(self.factor))


@refused(r"decode reads the quantizer's own fields\..* with another 'mode'")
class ModeOfTheReceiver(Steps):
    mode: str = ps.option("up", "the sign", choices=("up", "down"))

    def decode(self, parts):
        return np.asarray(super().decode(parts) * (1 if self.mode == "up" else -1))


@refused(r"decode reads the quantizer's own fields\..* with another 'flipped'")
class FlippedAtTheReceiver(Steps):
    flipped: bool = ps.option(False, "minus all values")

    def decode(self, parts):
        return -super().decode(parts) if self.flipped else super().decode(parts)


@refused(r"decode reads the quantizer's own fields\..* with another 'mode'")
class FifthModeOfTheReceiver(Steps):
    mode: str = ps.option("a", "the sign", choices="abcde")

    def decode(self, parts):
        return -super().decode(parts) if self.mode == "e" else super().decode(parts)


@refused(r"decode reads the quantizer's own fields\..* with another 'text'")
class TextOfTheReceiver(Steps):
    text: str = ps.option("up", "the sign")

    def decode(self, parts):
        return super().decode(parts) if self.text == "up" else -super().decode(parts)


@refused(r"decode reads the quantizer's own fields\..* with another 'scales'")
class TupleOfTheReceiver(Steps):
    scales: tuple[float, ...] = ps.option((1.0,), "of all values")

    def decode(self, parts):
        return np.asarray(super().decode(parts) * self.scales[0], part(parts, "like").dtype)


@refused(r"decode reads the quantizer's own fields\..* with another 'inner'")
class NoneOfTheReceiver(Steps):
    inner: ps.Quantizer | None = ps.option(None, "another quantizer")

    def decode(self, parts):
        return -super().decode(parts) if self.inner else super().decode(parts)


@refused(r"decode reads the quantizer's own fields\..* with another 'inner'")
class InnerOfTheReceiver(ps.Quantizer):
    inner: ps.Quantizer = ps.option(ps.Float16(), "another quantizer")

    def encode(self, x, rng):
        return self.inner.encode(x, rng)

    def decode(self, parts):
        return self.inner.decode(parts)

    def error_bound(self, x):
        return self.inner.error_bound(x)


@refused("other arrays were encoded in between: it raised ValueError: cannot reshape")
class ShapeInTheClass(ps.Quantizer):
    seen = {}

    def encode(self, x, rng):
        self.seen["last"] = x.shape
        return {"values": x.reshape(-1)}

    def decode(self, parts):
        return part(parts, "values").reshape(self.seen["last"])


@refused("a later call wrote into the part 'codes'")
class OneBufferForAll(Steps):
    buffer = np.empty(70_000, "i4")

    def codes(self, x, rng):
        self.buffer[: x.size] = super().codes(x, rng).reshape(-1)
        return self.buffer[: x.size].reshape(x.shape)


@refused("a later call wrote into the decoded array")
class OneResultForAll(Steps):
    results = {}

    def decode(self, parts):
        x = super().decode(parts)
        kept = self.results.setdefault((x.shape, x.dtype.str), x)
        kept[...] = x
        return kept


@refused("read-only.*writes into an array that was passed to it; copy first")
class ScalesInPlace(Steps):
    def encode(self, x, rng):
        x /= self.step
        return super().encode(x, rng)


@refused("decode returned float64; `shape_tag` and `zeros_for` keep the dtype")
class LosesTheDtype(Steps):
    def decode(self, parts):
        return part(parts, "codes") * part(parts, "step", float, (1,))[0]


@refused(r"float32 of shape \(\).*decode returned the shape \(1,\)")
class LosesZeroDimensions(ps.Exact):
    def encode(self, x, rng):
        return {"values": np.atleast_1d(x)}


@refused(r"zero-size array")
class FailsAtNothing(Steps):
    def encode(self, x, rng):
        return super().encode(x * (x.max() <= 1e40), rng)


@refused("is a float64, not an array")
class SendsANumber(Steps):
    def encode(self, x, rng):
        return super().encode(x, rng) | {"largest": np.float64(np.abs(x).max(initial=0))}


@refused("differs for the same seed: draw from rng only")
class DrawsGlobally(Steps):
    def codes(self, x, rng):
        return super().codes(x + self.step / 4 * (np.random.random(x.shape) - 0.5), rng)

    def error_bound(self, x):
        return super().error_bound(x) + self.step / 4


@refused("uses a global generator")
class SeedsTheGlobalOne(Steps):
    def codes(self, x, rng):
        np.random.seed(0)
        return super().codes(x + np.random.random(x.shape) * 0, rng)


@refused("the error is .*, error_bound says 0.0025")
class BoundsTooLittle(Steps):
    def error_bound(self, x):
        return self.step / 4


@refused("relative_variance returned None; expected a number from 0")
class SaysNoVariance(Steps):
    def relative_variance(self, x):
        return None


@refused("error_bound returned inf; expected None or a number from 0")
class BoundsNothing(Steps):
    def error_bound(self, x):
        return float("inf")


@refused("over 200 draws: the error is .*, error_bound says")
class ErrsNowAndThen(ps.Exact):
    """One draw in twenty is wide of the bound, and the first draw is not."""

    def encode(self, x, rng):
        off = (rng or np.random.default_rng(0)).random() > 0.95
        return {"values": np.asarray(x * x.dtype.type(1.5 if off else 1))}

    def error_bound(self, x):
        return 0.1 * float(np.abs(x).max(initial=0))


@refused("nbytes says 4000, and the parts hold|nbytes says")
class CountsTooFew(Steps):
    def nbytes(self, shape, dtype):
        return 4 * int(np.prod(shape))


@refused(r"decoded_shape says \(0, .*\), but decode returns")
class TellsAnotherShape(Steps):
    def decoded_shape(self, parts):
        return part(parts, "like").shape


@refused(r"few values, float32 of shape \(65600,\)")
class CountsIn16Bits(ps.Quantizer):
    """The values that are not zero, and their places."""

    def encode(self, x, rng):
        places = np.flatnonzero(x)
        return {"values": x.reshape(-1)[places], "places": places.astype("u2"), "like": shape_tag(x)}

    def decode(self, parts):
        x, values, places = zeros_for(parts), part(parts, "values"), part(parts, "places")
        x.reshape(-1)[places] = values
        return x

    def error_bound(self, x):
        return 0.0


@refused("expected ValueError, got KeyError")
class TrustsItsParts(Steps):
    def decode(self, parts):
        return np.asarray(parts["codes"] * parts["step"][0], parts["like"].dtype)  # no `part`


@refused("decode returned NaN or infinity|invalid value")
class DividesByZero(ps.Quantizer):
    def encode(self, x, rng):
        scale = np.abs(x).max(initial=0)
        return {"values": np.asarray(x / scale), "scale": np.asarray(scale)}

    def decode(self, parts):
        return np.asarray(part(parts, "values") * part(parts, "scale"))


@dataclass(frozen=True)
class Dithered(ps.Quantizer):
    """QSGD's kind: whole steps of the norm at random, unbiased. A right one."""

    name = "dithered"
    levels: int = ps.option(8, "steps of the norm", minimum=1, maximum=100)

    def codes(self, r, rng):
        return np.floor(r + rng.random(r.shape))

    def encode(self, x, rng):
        unit = length_of(x) / self.levels or 1.0
        codes = self.codes(x.astype(float) / unit, rng or np.random.default_rng(0))
        return {"codes": np.asarray(codes, np.int16), "unit": np.array([unit]), "like": shape_tag(x)}

    def decode(self, parts):
        x, unit = zeros_for(parts), part(parts, "unit", float, (1,))
        with np.errstate(over="ignore", invalid="ignore"):
            x[...] = part(parts, "codes", np.int16, x.shape) * unit[0]
        return x

    def relative_variance(self, x):
        length = length_of(x)
        r = x.astype(float) * (self.levels / length if length else 0)
        return float(((r - np.floor(r)) * (1 - (r - np.floor(r)))).sum()) / self.levels**2


def clipped(x):
    most = 2.5 * np.sqrt(np.square(x, dtype=float).mean()) if x.size else 1
    return np.asarray(np.clip(x, -most, most), x.dtype)


def length_of(x):
    return float(np.sqrt(np.square(x.astype(float)).sum()))


@pytest.mark.parametrize("levels", [1, 3, 100])
def test_the_right_random_one_is_accepted_without_a_warning(registry, levels):
    ps.testing.check(ps.register(Dithered)(levels=levels))


@refused(r"relative_variance says .*; over the draws .* on average")
class VariesMoreThanItSays(Dithered):
    def relative_variance(self, x):
        return 0.8 * super().relative_variance(x)


@refused(r"relative_variance says .*; over the draws .* on average")
class VariesLessThanItSays(Dithered):
    def relative_variance(self, x):
        return 2 * super().relative_variance(x)


@refused("it is biased")
class RoundsToNearest(Dithered):
    def codes(self, r, rng):
        return np.rint(r)


@refused("it is biased")
class CutsTowardsZero(Dithered):
    def codes(self, r, rng):
        return np.trunc(r + rng.random(r.shape))


@refused("it is biased")
class IgnoresRng(Dithered):
    def encode(self, x, rng):
        return super().encode(x, np.random.default_rng(0))


@refused("it is biased")
class ClipsTheLargest(ps.Ternary):
    """With the variance that it has so."""

    def relative_variance(self, x):
        return super().relative_variance(clipped(x))

    def encode(self, x, rng):
        return super().encode(clipped(x), rng)

    def error_bound(self, x):
        return 2 * float(np.abs(x).max(initial=0)) + 1e-300


@refused("it is biased")
class ForgetsTheFactor(ps.RandomK):
    def encode(self, x, rng):
        return ps.RandomK(self.fraction, unbiased=False).encode(x, rng)


@refused("relative_variance returned nan; expected a number from 0")
class DividesByTheNorm(Dithered):
    def relative_variance(self, x):
        return super().relative_variance(x) if x.any() else float("nan")


@pytest.mark.soak
@pytest.mark.parametrize(
    "quantizer", [ps.QSGD(1), ps.QSGD(), ps.Ternary(), ps.RandomK(1e-6), ps.RandomK(0.5)], ids=repr
)
def test_no_seed_makes_a_right_one_wrong(quantizer):
    for seed in range(1, 11):
        check_draws(quantizer, seed)


class Rough(Steps):
    """Says nothing of its error."""

    name = "rough"

    def error_bound(self, x):
        return None


def test_values_that_cannot_be_compared_are_a_warning(registry):
    rough = ps.register(dataclass(frozen=True)(Rough))()
    with pytest.warns(
        UserWarning, match=r"Rough\(.*\) loses values, and has neither error_bound nor relative_var"
    ) as said:
        ps.testing.check(rough)
    assert said[0].filename == __file__


def test_what_loses_nothing_needs_no_bound(registry):
    whole = type("Whole", (ps.Exact,), {"name": "whole", "error_bound": ps.Quantizer.error_bound})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ps.testing.check(ps.register(dataclass(frozen=True)(whole))())


@pytest.mark.parametrize(("cls", "said"), WRONG)
def test_a_wrong_quantizer_is_refused(registry, cls, said):
    refuse(cls, said)
