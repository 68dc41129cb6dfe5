"""Test cases for "Talk less often": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "local.1": {
        "by less than a tenth, or not at all": {"ratio": 1.03},
        "by a tenth to a half": {"ratio": 1.3},
        "by more than a half": {"ratio": 2.0},
        "none of these": {"ratio": nan},
    },
    "local.2": {
        "less than 1.1 times as high": {"ratio": 1.03},
        "1.1 to 1.5 times as high": {"ratio": 1.3},
        "more than 1.5 times as high": {"ratio": 1.9},
        "none of these": {"ratio": nan},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "local.1": ["the same loss", "as low a loss", "hardly"],
    "local.2": ["drift", "own minimum", "doubles"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "local.1": {
        "one step, no weight": """
def one_round(client, part, total, steps, rate):
    start = client.pull().result()
    gradient = part.gradient(start)
    client.push({name: rate * g for name, g in gradient.items()}).result()
""",
        "steps times the first gradient": """
def one_round(client, part, total, steps, rate):
    start = client.pull().result()
    weight = client.config.workers * part.rows / total
    for _ in range(steps):
        gradient = part.gradient(start)
    client.push({name: weight * steps * rate * g for name, g in gradient.items()}).result()
""",
        "no weight": ("weight * (p - end[name])", "p - end[name]"),
        "the share of the rows": ("client.config.workers * part.rows / total", "part.rows / total"),
        "for four workers": ("client.config.workers *", "4 *"),
        "the number of rows": ("client.config.workers * part.rows / total", "part.rows"),
        "the other way round": (
            "client.config.workers * part.rows / total",
            "total / part.rows / client.config.workers",
        ),
        "end minus start": ("(p - end[name])", "(end[name] - p)"),
        "a step too few": ("range(steps)", "range(steps - 1)"),
        "a step too many": ("range(steps)", "range(steps + 1)"),
        "the gradient at the start": ("part.gradient(end)", "part.gradient(start)"),
        "changes what it pulled": ("{name: p.copy() for name, p in start.items()}", "start"),
        "a push for each step": """
def one_round(client, part, total, steps, rate):
    weight = client.config.workers * part.rows / total
    for _ in range(steps):
        start = client.pull().result()
        client.push({name: weight * rate * g for name, g in part.gradient(start).items()}).result()
""",
        "one tensor steps": ("in gradient.items()", "in [*gradient.items()][:1]"),
        "divided by the rate": ("weight * (p - end[name])", "weight * (p - end[name]) / rate"),
        "divided by the steps": ("weight * (p - end[name])", "weight * (p - end[name]) / steps"),
        "a rate of its own": ("-= rate * g", "-= 0.1 * g"),
        "the last gradient": ("weight * (p - end[name])", "weight * rate * gradient[name]"),
        "two steps at most": ("range(steps)", "range(min(steps, 2))"),
        "the parameters themselves": ("weight * (p - end[name])", "weight * end[name]"),
        "goes on from its own end": """
ends = {}


def one_round(client, part, total, steps, rate):
    start = client.pull().result()
    end = ends.setdefault(id(client), {name: p.copy() for name, p in start.items()})
    for _ in range(steps):
        gradient = part.gradient(end)
        for name, g in gradient.items():
            end[name] -= rate * g
    weight = client.config.workers * part.rows / total
    client.push({name: weight * (p - end[name]) for name, p in start.items()}).result()
""",
        "in double precision": ("weight * (p - end[name])", "np.float64(weight) * (p - end[name])"),
    },
    "local.2": {
        "plain descent": """
@ps.register
@dataclass(frozen=True)
class Outer(ps.Optimizer):
    name = "outer"
    lr: float = 0.7
    momentum: float = 0.9

    def step(self, params, grads, state):
        for name, p in params.items():
            p -= self.lr * grads[name]
""",
        "minips' own": """
class Outer(ps.SGD):
    name = "outer"

    def __init__(self, lr=0.7, momentum=0.9):
        super().__init__(lr, momentum, nesterov=True)
""",
        "Polyak's momentum": ("(d + self.momentum * velocity[name])", "velocity[name]"),
        "the old velocity": (
            "            velocity[name] = self.momentum * velocity.get(name, np.zeros_like(d)) + d\n"
            "            p -= self.lr * (d + self.momentum * velocity[name])",
            "            p -= self.lr * (d + self.momentum * velocity.get(name, np.zeros_like(d)))\n"
            "            velocity[name] = self.momentum * velocity.get(name, np.zeros_like(d)) + d",
        ),
        "a momentum of its own": ("self.momentum * velocity[name]", "0.9 * velocity[name]"),
        "a rate of its own": ("self.lr *", "0.7 *"),
        "one velocity for all": ("velocity.get(name, np", "velocity.get(min(grads), np"),
        "the mean of both": ("np.zeros_like(d)) + d", "np.zeros_like(d)) + (1 - self.momentum) * d"),
        "begins with d": ("velocity.get(name, np.zeros_like(d)) + d", "velocity.get(name, d) + d"),
        "uphill": ("p -=", "p +="),
        "not in place": ("p -= self.lr", "params[name] = p - self.lr"),
        "the velocity is d's array": (
            "self.momentum * velocity.get(name, np.zeros_like(d)) + d",
            "np.add(self.momentum * velocity.get(name, np.zeros_like(d)), d, out=d)",
        ),
        "forgets at each tenth": (
            'state.setdefault("velocity", {})',
            "state.setdefault('velocity', {}) if state['clock'] % 10 else {}",
        ),
        "kept in the optimizer": ('state.setdefault("velocity", {})', "vars(self).setdefault('velocity', {})"),
        "looks ahead twice": ("(d + self.momentum * velocity[name])", "(d + self.momentum**2 * velocity[name])"),
        "single precision": (
            "velocity.get(name, np.zeros_like(d)) + d",
            "velocity.get(name, np.zeros_like(d)) + d.astype('f2')",
        ),
    },
}
"""Maps an exercise and an error to a piece of the solution and what replaces it, or to a whole wrong answer."""

RIGHT = {
    "local.1": {
        "by sums of gradients": """
def one_round(client, part, total, steps, rate):
    start = client.pull().result()
    moved = {name: np.zeros_like(p) for name, p in start.items()}
    for _ in range(steps):
        gradient = part.gradient({name: p - moved[name] for name, p in start.items()})
        moved = {name: moved[name] + rate * gradient[name] for name in start}
    mean_rows = total / client.config.workers
    client.push({name: part.rows / mean_rows * x for name, x in moved.items()}).result()
""",
        "new arrays at each step": """
def one_round(client, part, total, steps, rate):
    start = end = client.pull().result()
    while steps:
        slopes = part.gradient(end)
        end, steps = {name: end[name] - slopes[name] * rate for name in end}, steps - 1
    change = {}
    for name in end:
        change[name] = (start[name] - end[name]) * (part.rows / total) * client.config.workers
    client.push(change).result(10)
""",
    },
    "local.2": {
        "in place": """
@ps.register
@dataclass(frozen=True)
class Outer(ps.Optimizer):
    name = "outer"
    lr: float = 0.7
    momentum: float = 0.9

    def step(self, params, grads, state):
        for name, d in grads.items():
            if name not in state:
                state[name] = np.zeros_like(d)
            state[name] *= self.momentum
            state[name] += d
            params[name] -= self.lr * d + self.lr * self.momentum * state[name]
""",
        "by minips' SGD": """
@ps.register
@dataclass(frozen=True)
class Outer(ps.Optimizer):
    name = "outer"
    lr: float = 0.7
    momentum: float = 0.9

    def step(self, params, grads, state):
        ps.SGD(self.lr, self.momentum, nesterov=True).step(params, grads, state)
""",
    },
}
"""Maps an exercise to right answers that are written differently."""

MUTANT = (
    "the mean by rows weighs all workers equally",
    "minips/stages/aggregators/robust.py",
    "shares = [one.rows / mean for one in contributions]",
    "shares = [mean / mean for one in contributions]",
)
"""A weighted mean without weights."""
