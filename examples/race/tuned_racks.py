"""The tuner's best with servers for a cluster like the racks, whose faults end an all-reduce."""

import minips as ps

config = ps.Config(
    push=ps.Codec(ps.Sign(), ps.ErrorFeedback()),
    pull=ps.Codec(ps.Float16()),
    optimizer=ps.SGD(lr=0.5),
)
