"""``torch_rpc.py`` in minips: two workers push gradients of a linear model, a server averages and steps."""

import numpy as np

import minips as ps

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 10)).astype(np.float32)
    y = X @ rng.normal(size=10).astype(np.float32) + 1
    problem = ps.LinearRegression(X, y)
    run = ps.train(problem, ps.Config(workers=2, steps=30, batch_size=None, optimizer=ps.SGD(lr=0.1)))
    print(f"loss {problem.loss(run.params):.7g} after {run.updates} gradients")
