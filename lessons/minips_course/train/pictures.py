"""The lesson's pictures."""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits


def draw_images(count: int = 8) -> None:
    """Draw the first images of the data."""
    _, axes = plt.subplots(1, count, num="the first eight images", figsize=(count, 1.2), layout="constrained")
    for ax, image in zip(axes, load_digits().images[:count], strict=True):
        ax.imshow(image, cmap="gray_r")
        ax.axis("off")
    plt.show()
