"""The tuner's best for a cluster like the office (benchmarks/race/tuned.py)."""

import minips as ps

config = ps.Config(optimizer=ps.SGD(lr=0.5), servers=2)
