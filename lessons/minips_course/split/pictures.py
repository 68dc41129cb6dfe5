"""The lesson's pictures."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np

from minips.stage import Array, Tensors


def draw_shards(gradients: Sequence[Tensors], mean: Tensors, full: Tensors, digit: int = 3) -> None:
    """Draw the step of the 64 weights of a digit for each worker, for the workers' mean, and for all rows. A last image
    shows the difference between the mean and all rows, magnified by the power of ten in its title.
    """

    def of(g: Mapping[str, Array]) -> Array:
        return np.asarray(-g["W"][:, digit].reshape(8, 8))

    titled = {f"worker {i}": of(g) for i, g in enumerate(gradients)} | {"their mean": of(mean), "all images": of(full)}
    top, most = max(np.abs(one).max() for one in titled.values()), np.abs(of(mean) - of(full)).max()
    power = int(np.round(np.log10(top / most))) if most else 0
    titled[f"difference\n× $10^{{{power}}}$"] = (of(mean) - of(full)) * 10.0**power
    _, axes = plt.subplots(1, len(titled), figsize=(9.4, 2.3), layout="constrained")
    for ax, (title, picture) in zip(axes, titled.items(), strict=True):
        drawn = ax.imshow(picture, cmap="PuOr", vmin=-top, vmax=top)
        ax.set_title(title, fontsize=10)
        ax.axis("off")
    plt.colorbar(drawn, ax=axes, label="change of weight", shrink=0.8)
    plt.show()
