"""Lesson 03: what is wrong, the piece of the solution, and what stands there instead."""

VELOCITY = "state[name] = self.momentum * state.get(name, np.zeros_like(p)) + grads[name]"

BROKEN = {
    "03.1": {
        "no momentum": ("self.momentum * state.get(name, np.zeros_like(p)) + grads[name]", "grads[name]"),
        "one velocity for all": (
            VELOCITY,
            f"name, g = 'v', grads[name]\n            {VELOCITY.replace('grads[name]', 'g')}",
        ),
        "damped": ("+ grads[name]", "+ (1 - self.momentum) * grads[name]"),
        "a new array": ("p -= self.lr * state[name]", "params[name] = p - self.lr * state[name]"),
        "uphill": ("p -=", "p +="),
        "a velocity of its own": ("self.momentum *", "0.9 *"),
        "does nothing": ("p -= self.lr * state[name]", "pass"),
        "kept in the class": (
            "    def step(self, params, grads, state):",
            "    kept = {}\n\n    def step(self, params, grads, state):\n        state = self.kept",
        ),
        "fields that are missing": ("momentum: float = ps.option(0.9,", "keep: float = ps.option(0.9,"),
    },
    "03.2": {
        "any kind goes": ('kind != "push"', "False"),
        "shapes go": ("!= params[name].shape", "is None"),
        "names go": ("tensors.keys() != params.keys()", "False"),
        "too few names go": ("tensors.keys() != params.keys()", "tensors.keys() - params.keys()"),
        "no sentence": ('f"There is no {kind!r}; there are push and pull."', '""'),
        "refuses everything": ('if kind == "pull":\n        return params', 'return "error", "no"'),
        "not in place": ("params[name] -= lr * gradient", "params[name] = params[name] - lr * gradient"),
        "uphill": ("-= lr", "+= lr"),
        "a push of None stops it": ("not isinstance(tensors, dict)", "False"),
        "None alone is no dict": ("not isinstance(tensors, dict)", "tensors is None"),
        "as many names": ("tensors.keys() != params.keys()", "len(tensors) != len(params)"),
        "as many values": (
            "np.shape(gradient) != params[name].shape",
            "np.size(gradient) not in (1, params[name].size)",
        ),
        "what numpy would not broadcast": (
            "np.shape(gradient) != params[name].shape",
            "np.broadcast_shapes(np.shape(gradient), params[name].shape) != params[name].shape",
        ),
        "one order of the names": ("tensors.keys() != params.keys()", "[*tensors] != [*params]"),
        "half a push": (
            """            return "error", f"{name!r} must have""",
            """            params[next(iter(params))] += 1
            return "error", f"{name!r} must have""",
        ),
    },
}
