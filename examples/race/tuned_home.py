"""The tuner's best for a cluster like the homes, and for one like the racks (benchmarks/race/tuned.py)."""

import minips as ps

config = ps.Config(
    push=ps.Codec(ps.Sign(), ps.ErrorFeedback()),
    optimizer=ps.SGD(lr=0.5),
    exchange=ps.TwoShot(),
)
