"""Predict a disease's progress, with a decaying learning rate; stop early, resume, and get the result of a single run.

The evaluations are written to ``diabetes.csv``, and the run to ``diabetes.npz``.
"""

import numpy as np

import minips as ps

if __name__ == "__main__":
    X, y, X_new, y_new = ps.datasets.diabetes()
    problem = ps.LinearRegression(X, y, X_new, y_new)
    decaying = ps.SGD(lr=0.05, momentum=0.5, schedule=ps.Warmup(steps=10, then=ps.Cosine(steps=190)))
    config = ps.Config(workers=2, steps=200, optimizer=decaying)

    stopping = ps.EarlyStopping(patience=3, min_delta=0.001)
    run = ps.train(problem, config, engine="threads", every=10, on_eval=[stopping, ps.CsvLog("diabetes.csv")])
    print(f"Stopped after {run.updates // 2} of {config.steps} steps.")
    if stopping.best:
        print(f"Best validation loss {stopping.best.validation_loss:.4f} at step {stopping.best.step}.")
    run.save("diabetes.npz")

    longer = ps.train(problem, config, resume="diabetes.npz", engine="threads")  # the velocity is resumed, too
    straight = ps.train(problem, config, engine="threads")
    same = all(np.array_equal(longer.params[name], p) for name, p in straight.params.items())
    print(f"Resumed to step {longer.updates // 2}: {longer.validation_loss:.4f}; the same bits as in one go: {same}.")
    best = problem.held_out()
    if best:
        print(f"The exact solution has {best.loss(problem.solution()):.4f}.")
