"""A small convolutional network in PyTorch, trained by four workers and then used as an ordinary module."""

import numpy as np
import torch
from torch import nn

import minips as ps
from minips.torch import TorchProblem


def make_net() -> nn.Module:
    """Digits of 8 × 8 pixels to ten scores."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


if __name__ == "__main__":
    X, y, X_new, y_new = ps.datasets.digits()
    problem = TorchProblem(make_net, nn.functional.cross_entropy, X, y, X_new, y_new)
    push = ps.Codec(quantizer=ps.Uniform(bits=8), memory=ps.ErrorFeedback())
    run = ps.train(problem, ps.Config(steps=150, push=push, optimizer=ps.SGD(lr=0.05, momentum=0.9)))
    print(run.summary())

    net = problem.module(run.params)  # in evaluation mode, with the trained parameters
    with torch.no_grad():
        guesses = net(torch.from_numpy(X_new)).argmax(1).numpy()
    for digit in range(10):
        print(f"{digit}: {np.mean(guesses[y_new == digit] == digit):.0%} recognised")
