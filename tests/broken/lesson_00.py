"""Lesson 00: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "00.1": {
        "all the bytes": ("ps.Sign()", "ps.Exact()"),
        "half the bytes": ("ps.Sign()", "ps.Float16()"),
        "too few values": ("ps.Sign(), memory=ps.ErrorFeedback()", "ps.TopK(0.01)"),
        "the one that was shown": ("ps.Sign()", "ps.TopK(fraction=0.05)"),
        "shown, for one tensor": ("ps.Sign()", '{"W": ps.TopK(0.05), "*": ps.Exact()}'),
        "the pull, too": ("push=sign", "push=sign, pull=ps.Codec(quantizer=ps.Float16())"),
        "fewer steps": ("steps=100", "steps=25"),
        "fewer workers": ("steps=100", "steps=100, workers=1"),
        "only a codec": ("ps.Config(steps=100, push=sign)", "sign"),
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
