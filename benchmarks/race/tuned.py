"""Ask the tuner for an entry: the config that it finds fastest on a cluster that is like the track's network.

    python benchmarks/race/tuned.py

The tuner knows equal machines around one switch, and no stragglers. The link of each is the track's thinnest.
"""

import minips as ps
from minips.racing.tracks import BATCH_S, ROW_S, problem_of
from minips.racing.verdicts import TARGET

NETWORKS = {"office": (1e9, 1e-4), "racks": (5e6, 3e-4), "home": (1e6, 2e-2)}
"""The bits per second of a machine's link, and the seconds of a message."""


def main() -> None:
    """Tune for each track, and print the candidates and the best."""
    start = ps.Config(workers=8, optimizer=ps.SGD(lr=0.5), steps=100)
    compute_s = BATCH_S + ROW_S * (start.batch_size or 0)
    for track, (bandwidth_bps, latency_s) in NETWORKS.items():
        cluster = ps.cost.Cluster(machines=10, bandwidth_bps=bandwidth_bps, latency_s=latency_s, compute_s=compute_s)
        tuning = ps.cost.tune(problem_of(0), target_accuracy=TARGET, cluster=cluster, start=start, progress=False)
        print(track, tuning, tuning.best, sep="\n", flush=True)


if __name__ == "__main__":
    main()
