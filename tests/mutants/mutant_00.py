"""Lesson 00: sparsified gradients whose values are all zero."""

MUTANT = (
    "the largest values travel as zeros",
    "minips/stages/quantizers/sparse.py",
    """        indices = largest_indices(np.abs(flat), sent_count(self.fraction, x.size))
        return {"values": flat[indices],""",
    """        indices = largest_indices(np.abs(flat), sent_count(self.fraction, x.size))
        return {"values": 0 * flat[indices],""",
)
