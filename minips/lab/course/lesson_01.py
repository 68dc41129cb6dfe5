"""Lesson 01: split a gradient."""

import copy
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, distance, drawn_seed, refuse_if
from minips.lab.course.questions import Expected, Option, card, question, sentence
from minips.stage import Array, Tensors

question(
    "01.1",
    "How far is the mean of the four gradients from the gradient of all the images?",
    Option(
        "some percent: each worker saw other images",
        lambda mean: 0.005 <= mean < 2,
        "The four shards did not add up to the images: some counted twice, or more than others, or not at all.",
    ),
    Expected(
        "nothing but the last digits of float64",
        lambda mean: 0 < mean < 1e-12,
        "The loss is a mean over rows, so its gradient is one, too. The mean of four means over 350 rows each"
        " is the mean over all 1400: the same sum with other brackets. Only the rounding of the additions "
        "differs.",
    ),
    Option(
        "nothing at all: every bit is the same",
        lambda mean: mean == 0,
        "Each addition was rounded as it was in the sum over all the images, so this machine adds in the same groups.",
    ),
    otherwise="The mean is off by more than rounding explains, and by less than the images differ.",
)

question(
    "01.2",
    "Is that still the gradient of all 1400 images?",
    Option(
        "yes, but for the last digits",
        lambda off, large, small: 0 <= off < 1e-12,
        "Each image counted the same, whichever share it was in.",
    ),
    Option(
        "no: the images of the large shard count too much",
        lambda off, large, small: off > 0.01 and large > 1 > small,
        "Worker 0's part of the mean was larger than its part of the images.",
    ),
    Expected(
        "no: the images of the small shards count too much",
        lambda off, large, small: off > 0.01 and small > 1 > large,
        "Each worker's mean counts a quarter, and the images of a worker share that quarter. A hundred images"
        " share it in one case, eleven hundred in the other.",
    ),
    otherwise="The plain mean is off, but not because the images of one of the shards count more.",
)

sentence(
    "01.1",
    "One worker alone is off by {least:.2f} or more. The mean of the four is off by {mean:.0e}.",
    expect="least > 0.05 and 0 < mean < 1e-13",
)

sentence("01.2", "The plain mean is off by {off:.2f}.", expect="off > 0.05")

sentence(
    "01.3",
    "Worker 0 makes {part:.2f} of the plain mean, and has {fair:.2f} of the images. So an image in the large shard "
    "counts {large:.2f} times what it should, one in a small shard {small:.1f} times.",
    expect="small > 3 and large < 0.5",
)

sentence(
    "01.4",
    "Each run looks at {least:,} images. Accumulation sends {ratio:.2f} of the bytes.",
    expect="least == most == 12800 and 0.2 < ratio < 0.3",
)

sentence(
    "01.5",
    "Over five seeds, accumulation with lr × 4 changes the accuracy by {mean:+.1f} percentage points (95 % interval "
    "±{half:.1f}).",
    expect="abs(mean) + half < 3",
)

sentence("01.6", "The plain mean is off by {off:.4f}.", expect="1e-9 < off < 0.01")

sentence(
    "01.7",
    "{same} of {splits} splits, into up to {most} shards: all the bits are the same.",
    expect="same == splits == 4",
)

sentence("01.8", "{orders} orders, {sums} different sums.", expect="orders == 24 and 1 < sums <= 24")

sentence(
    "01.9",
    "Over TCP and over pipes: of {arrays} arrays {same} are the same to the last bit.",
    expect="same == arrays == 2",
)

sentence(
    "01.10",
    "After 50 steps the parameters of the four processes and those of the loop differ by {off:.0e}.",
    expect="0 <= off < 1e-12",
)

sentence(
    "01.11",
    "{dtype}: the mean of the shards is off by {least:.1f} ε to {most:.1f} ε on this machine. The whole gradient with "
    "its rows in another order is off by {mixed:.1f} ε.",
    expect="0 < most < 1000 and 0 < mixed < 1000",
)

sentence(
    "01.12",
    "So each worker alone is off by {least:.1f} or more. The mean of the four is off by {mean:.0e}.",
    expect="least > 1 and mean < 1e-13",
)

sentence(
    "01.13",
    "The loss of all images, five seeds: {each:.2f} where each batch is pushed, {fourth:.2f} where every fourth is, at "
    "the same learning rate, {longer:.2f} with lr × 4. The last and the first differ by {mean:+.3f} (95 % interval "
    "±{half:.3f}).",
    expect="abs(mean) + half < 0.05 and fourth > 1.5 * each",
)

card(
    "01.14",
    "{rows} rows, {settings} settings of batch and workers: measured over computed lies between {least:.2f} and "
    "{most:.2f}.",
    expect="settings == 11 and 0.9 < least <= most < 1.1",
)

sentence(
    "01.15",
    "With accumulation the loss is least at lr × {best}. At lr × 1024 it is larger by {worse:.2f} (95 % interval "
    "±{half:.2f}, five seeds): that step is too long.",
    expect="4 < best < 1024 and worse > half",
)

sentence(
    "01.16",
    "Without accumulation the loss at lr × 256 is larger by {noisy:.2f} (95 % interval ±{half:.2f}, five seeds). At "
    "lr × 4 the two differ by {near:.3f} on average.",
    expect="noisy > half and near < 0.02",
)


@asks(
    "01.1",
    "A worker's gradient is the mean over its rows. What is it times the number of its rows?",
    "Add n·g over the workers, and divide by the number of all the rows.",
    "A dictionary with one weighted mean for each name: the weights are the numbers of rows, and they add up to 1.",
)
def combine(function: Any, rng: np.random.Generator) -> str:
    """Combine the gradients of unequal shards, so that each row counts once."""
    refuse_if(not callable(function), f"Expected the function combine(gradients, rows), got {function!r}.")
    for trial in range(12):
        rows, d = int(rng.integers(30, 80)), int(rng.integers(2, 6))
        problem = ps.LinearRegression(rng.normal(size=(rows, d)), rng.normal(size=rows) + 3)
        params: Tensors = {"w": rng.normal(size=d), "b": np.array(rng.normal())}
        workers = int(rng.integers(2, 6))
        cuts = np.sort(rng.choice(np.arange(1, rows), workers - 1, replace=False))
        shares = np.split(rng.permutation(rows), cuts)
        if trial == 0:
            shares = np.array_split(np.arange(rows // workers * workers), workers)
        sizes = [len(share) for share in shares]
        gradients = [problem.gradient(params, share) for share in shares]
        kept = copy.deepcopy(gradients)
        with case(f"With {sizes} rows:"):
            _is_close(function(gradients, sizes), problem.gradient(params, np.concatenate(shares)))
            changed = any(distance(one, old) for one, old in zip(gradients, kept, strict=True))
            refuse_if(changed, "a worker's gradient was changed. Make a new array.")
    return "Right for a dozen random splits, with equal shares and with unequal ones."


@asks(
    "01.2",
    "Two things change: the loss of a row, and its slope. X and y, the means and the shapes stay as they are.",
    "np.where(far, a, b) takes a where far is true. The slope is r near zero, and +δ or −δ beyond.",
    "Two arrays of the shape of r: the losses by np.where on |r| > δ, and the slopes, which are r cut off at −δ and δ.",
)
def robust(cls: Any, rng: np.random.Generator) -> str:
    """Make the least squares problem a Huber loss, so that rows that are far off do not shout."""
    if not (isinstance(cls, type) and issubclass(cls, ps.Problem)):
        raise Refused(f"Expected your class, as in lab.check('01.2', Robust), got {cls!r}.")
    for _ in range(4):
        X, y, truth = _with_outliers(rng, rows=2 * int(rng.integers(20, 60)))
        problem: Any = cls(X, y)
        problem.delta = float(rng.uniform(0.2, 3))
        names = set(problem.init(rng))
        refuse_if(names != {"w", "b"}, f"init() named the parameters {sorted(names)}; expected w and b.")
        params = {name: np.asarray(p + rng.normal(size=p.shape)) for name, p in truth.items()}
        with case(f"With delta={problem.delta:.2f} and {len(y)} rows"):
            _follows_huber(problem, params)
    X, y, truth = _with_outliers(rng, rows=600)
    small = cls(X.astype("f4"), y.astype("f4"))
    types = {str(g.dtype) for g in small.gradient(small.init(rng)).values()}
    refuse_if(types != {"float32"}, f"With float32 rows the gradients are {', '.join(sorted(types))}; keep float32.")
    config = ps.Config(workers=2, steps=60, batch_size=None, optimizer=ps.SGD(lr=0.3), seed=drawn_seed(rng))
    mine = ps.train(cls(X, y), config, engine=ps.Processes())
    far, plain = _off(mine.params, truth), _off(ps.LinearRegression(X, y).solution(), truth)
    with case("Trained in two workers,"):
        refuse_if(far > 0.5 * plain, f"it ended {far:.2f} from the truth, where least squares is {plain:.2f} away.")
    return f"Loss and slope are right. Trained in two workers: {far:.2f} from the truth; least squares: {plain:.2f}."


def _follows_huber(problem: Any, params: Tensors) -> None:
    delta, rows = problem.delta, np.arange(problem.rows)
    r = problem.X @ params["w"] + params["b"] - problem.y
    losses, slopes = np.where(np.abs(r) > delta, delta * (np.abs(r) - delta / 2), r**2 / 2), np.clip(r, -delta, delta)
    for chosen, said in ((None, "(all of them)"), (rows[::3], "(every third)")):
        loss, gradient = problem.loss_and_gradient(params, chosen)
        some = rows if chosen is None else chosen
        expected = float(losses[some].mean())
        largest = f"The largest residual is {np.abs(r).max():.1f}."
        refuse_if(not np.isclose(loss, expected), f"{said} the loss is {loss:.4f}, expected {expected:.4f}. {largest}")
        wanted = {"w": slopes[some] @ problem.X[some] / len(some), "b": slopes[some].mean()}
        for name, p in params.items():
            shape = np.shape(gradient[name])
            refuse_if(shape != p.shape, f"{said} the gradient of {name!r} has shape {shape}, expected {p.shape}.")
            got, falls = (np.round(x, 4).tolist() for x in (gradient[name], wanted[name]))
            near = np.allclose(gradient[name], wanted[name], rtol=1e-4, atol=1e-5)
            refuse_if(not near, f"{said} the gradient of {name!r} is {got}, but your loss has the slope {falls} there.")
    with case("(shared by two workers)"):
        halves = [problem.shard(i, 2).gradient(params) for i in range(2)]
        _is_close({name: (halves[0][name] + halves[1][name]) / 2 for name in params}, problem.gradient(params))


def _with_outliers(rng: np.random.Generator, rows: int) -> tuple[Array, Array, Tensors]:
    """Rows of a linear model, an even number, a twelfth of them with a zero too many; and the true parameters."""
    d = int(rng.integers(2, 6))
    truth: Tensors = {"w": rng.normal(size=d), "b": np.array(rng.uniform(2, 3))}
    X = rng.normal(size=(rows, d))
    y = X @ truth["w"] + truth["b"] + 0.1 * rng.normal(size=rows)
    y[::12] = 10 * np.abs(y[::12]) + 10
    return X, y, truth


def _off(params: Tensors, truth: Tensors) -> float:
    return float(np.sqrt(sum(np.square(params[name] - p).sum() for name, p in truth.items())))


class _Counted(ps.SoftmaxRegression):
    """A problem that knows which rows it was asked for."""

    def __init__(self, *rows: Any) -> None:
        super().__init__(*rows)
        self.asked: list[Array] = []

    def loss_and_gradient(self, params: Tensors, rows: Any = None) -> tuple[float, Tensors]:
        self.asked.append(np.atleast_1d(np.arange(self.rows) if rows is None else np.arange(self.rows)[rows]))
        return super().loss_and_gradient(params, rows)


@asks(
    "01.3",
    "range takes a step: it gives the starts of pieces of `most` rows. The last piece may be shorter.",
    "Each piece's gradient is a mean over its rows. How did exercise 01.1 add means?",
    "One loop, one running sum for each name, weighted by the piece's length, and one division after the loop.",
)
def in_pieces(function: Any, rng: np.random.Generator) -> str:
    """Compute the gradient of the chosen rows in pieces of at most `most` rows."""
    refuse_if(not callable(function), f"Expected the function in_pieces, got {function!r}.")
    for trial in range(8):
        data = ps.datasets.synthetic(
            rows=200, features=4, classes=3, noise=1.0, seed=drawn_seed(rng), dtype="float64", validation=0.1
        )
        problem = _Counted(data.X, data.y)
        params: Tensors = {name: rng.normal(size=p.shape) for name, p in problem.init(rng).items()}
        rows = rng.choice(problem.rows, int(rng.integers(30, 90)), replace=False)
        most = [len(rows), 1, 7][trial] if trial < 3 else int(rng.integers(2, len(rows)))
        with case(f"With {len(rows)} rows, {most} at once:"):
            got = function(problem, params, rows.copy(), most)
            seen = np.concatenate([*problem.asked, np.array([], int)])
            largest = max((len(one) for one in problem.asked), default=0)
            refuse_if(largest > most, f"{largest} rows were asked for in one go.")
            lacking = len(np.setdiff1d(rows, seen))
            refuse_if(lacking, f"{lacking} of the rows were never looked at.")
            refuse_if(len(seen) > len(rows), f"{len(seen)} rows were looked at in all.")
            _is_close(got, ps.SoftmaxRegression(data.X, data.y).gradient(params, rows))
    return "Each row was looked at once, never too many at a time, and the gradient is that of all of them."


def _is_close(got: Any, wanted: Tensors) -> None:
    if not isinstance(got, dict) or set(got) != set(wanted):
        raise Refused(f"expected a dict of {sorted(wanted)}, got {got if got is None else type(got).__name__}.")
    for name, g in wanted.items():
        refuse_if(np.shape(got[name]) != g.shape, f"{name!r} has shape {np.shape(got[name])}, not {g.shape}.")
        far = distance(got, {name: g})
        refuse_if(not far <= 1e-9, f"{name!r} is off the gradient of all the rows by {far:.3g}.")
