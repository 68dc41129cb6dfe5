"""Lesson 00: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "00.1": {
        "all the bytes": ("ps.Sign()", "ps.Exact()"),
        "half the bytes": ("ps.Sign()", "ps.Float16()"),
        "too few values": ("ps.Sign(), memory=ps.ErrorFeedback()", "ps.TopK(0.01)"),
        "fewer steps": ("steps=100", "steps=25"),
        "fewer workers": ("steps=100", "steps=100, workers=1"),
        "only a codec": ("ps.Config(steps=100, push=sign)", "sign"),
    },
    "00.2": {
        "everybody waits": ("delays=slow, consistency=ps.ASP()", "consistency=ps.BSP()"),
        "a clock ahead, then waiting": ("delays=slow, consistency=ps.ASP()", "consistency=ps.SSP(staleness=1)"),
        "a bound as long as the run": ("delays=slow, consistency=ps.ASP()", "consistency=ps.SSP(staleness=17)"),
        "a bound for thirty steps": ("delays=slow, consistency=ps.ASP()", "consistency=ps.SSP(staleness=8)"),
        "a bound that no run reaches": ("delays=slow, consistency=ps.ASP()", "consistency=ps.SSP(staleness=10_000)"),
        "too few gradients in a round": ("delays=slow, consistency=ps.ASP()", "consistency=ps.BSP(backup=3)"),
        "another change": ("delays=slow, consistency=ps.ASP()", "workers=3, consistency=ps.ASP()"),
        "only a stage": ("ps.Config(steps=30, delays=slow, consistency=ps.ASP())", "ps.ASP()"),
    },
    "00.3": {
        "the whole run": (" / run.updates", ""),
        "what was wanted": ("run.updates", "(run.config.workers * run.config.steps)"),
        "received": ("run.bytes_sent", "run.bytes_received"),
        "a step of all the workers": ("run.updates", "run.config.steps"),
        "whole bytes": (" / run.updates", " // run.updates"),
        "rounded": ("run.bytes_sent / run.updates", "round(run.bytes_sent / run.updates)"),
        "text": ("run.bytes_sent / run.updates", "f'{run.bytes_sent / run.updates:.1f}'"),
    },
}
