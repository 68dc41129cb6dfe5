"""Federated averaging: workers take several local steps before they send anything.

The server changes its parameters by the workers' average change: FedAvg (McMahan et al. 2017) or, with Nesterov's
momentum, DiLoCo (Douillard et al. 2023). With ten local steps, a run sends a tenth of the bytes.
"""

import minips as ps

if __name__ == "__main__":
    problem = ps.SoftmaxRegression(*ps.datasets.digits())
    inner = ps.SGD(lr=0.1)
    ten = ps.LocalSteps(steps=10, optimizer=inner)
    plain, nesterov = ps.SGD(lr=1.0), ps.SGD(lr=0.7, momentum=0.5, nesterov=True)
    for name, local, outer in ("every step", None, inner), ("FedAvg", ten, plain), ("DiLoCo", ten, nesterov):
        run = ps.train(problem, ps.Config(steps=200, local=local, optimizer=outer), engine="threads")
        print(f"{name:10} accuracy {run.accuracy:.3f}, {run.bytes_sent / 1e6:5.2f} MB sent by {run.config.workers}")
