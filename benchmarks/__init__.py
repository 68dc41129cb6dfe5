"""``python -m benchmarks``: minips and its parts on this machine, beside other systems in the same run.

Machines differ and are shared, so the tables hold ratios. All contenders of a row are ready at the same time and take
turns, in an order drawn anew for each round; a ratio is the median over the rounds, with its quartiles. A contender
that is not installed has a row that says what to install.

Each table has a module with the same three functions: ``measure`` yields rows as they come, ``table`` shows them in a
terminal, ``chart`` describes a picture. `base` has their common parts; turns and races come from `minips.lab.measure`,
as in the lessons. The code of child processes is in modules of its own, so that a child imports nothing else: `ways`
(a message there and back), `jobs` (a training run), and `with_ray` (both).
"""
