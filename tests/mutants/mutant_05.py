"""Lesson 05: arrays that are copied on their way into frames."""

MUTANT = (
    "an array's bytes are a copy of it",
    "minips/stages/serializers/base.py",
    "return np.frombuffer(array, np.uint8).data",
    "return memoryview(array.tobytes())",
)
