"""Lesson 20: a hook that forgets its memory."""

MUTANT = (
    "the codec hook makes its sender anew for each bucket, so that its memory is empty",
    "minips/torch.py",
    "if self._sender is None:",
    "if True:",
)
