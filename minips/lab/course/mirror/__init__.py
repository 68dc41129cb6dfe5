"""An answer that stays in its sandbox, and a stand-in for it, to which a check is applied out here.

A check calls an answer, looks at its results, and decides. If the answer ran in the check's process, it could change
the check. So the check runs in the grader's process, and the answer in a `minips.sandbox.Sandbox`:

    with mirror.Outside(sandbox) as outside:
        verdict = exercises.judge(exercise, outside.answer("mine"), rng)

`Outside.answer` returns a stand-in for what the sandboxed module calls ``mine``. It can be called, has the attributes
of the object, and, if this is a class, has instances and the minips classes that it inherits from. If the sandbox
fails, ``outside.error`` says why, and the verdict means nothing. Between the two processes:

- numbers, texts, bytes, tuples and minips' own values (configs, stages, contributions) are copied;
- an array has a twin on the other side. Whenever control changes sides, both have the same values, so what one side
  writes into an array, the other sees. A view of a shared array has a view as its twin;
- lists, dicts, sets and generators have a twin until the call that brought them ends;
- everything else stays where it is. The other side gets a stand-in, which asks for each call and each attribute.

So a class that claims to be equal to everything, or an array whose ``max`` lies, arrives as what it is: an object
without a value, or plain numbers. Nothing that the sandbox sends is a pickle, and no name in it leads to a function
here. What a check hands to an answer can be called from there, by its public names.
"""

from minips.lab.course.mirror.outside import Outside as Outside
from minips.lab.course.mirror.side import MirrorError as MirrorError
