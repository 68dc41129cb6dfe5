"""Four bits each way, with what they lose remembered, and nobody waits for a slow uplink or a dead worker."""

import minips as ps

config = ps.Config(
    push=ps.Codec(ps.Uniform(bits=4), ps.ErrorFeedback()),
    pull=ps.Codec(ps.Uniform(bits=4), ps.Delta()),
    consistency=ps.ASP(),
    optimizer=ps.SGD(lr=1.0),
    local=ps.LocalSteps(4, ps.SGD(lr=1.0)),
    steps=600,
)
