"""Classify tumours as benign or malignant: train on 455 of them, predict the other 114, and save the model to a file.

Four worker processes send their gradients to a parameter server, which takes the steps. Run this file without changes.
"""

import numpy as np

import minips as ps

NAMES = np.array(["malignant", "benign"])

if __name__ == "__main__":
    X, y, X_new, y_new = ps.datasets.breast_cancer()
    problem = ps.SoftmaxRegression(X, NAMES[y], X_new, NAMES[y_new], l2=0.01)
    run = ps.train(problem, ps.Config(workers=4, steps=300, optimizer=ps.SGD(lr=0.5)))
    print(run.summary())

    predicted = run.predict(X_new)  # a label for each row
    certainty = run.predict_proba(X_new).max(axis=1)
    wrong = np.flatnonzero(predicted != NAMES[y_new])
    print(f"\n{len(y_new) - len(wrong)} of {len(y_new)} new tumours are classified correctly; the others:")
    for row in wrong:
        print(f"  row {row:3}: {predicted[row]} with {certainty[row]:.0%}, but it is {NAMES[y_new][row]}")

    run.save("breast_cancer.npz")
    again = ps.Run.load("breast_cancer.npz")  # perhaps later and in another program
    print(f"Loaded again: {again}, the same predictions: {np.array_equal(again.predict(X_new), predicted)}")
