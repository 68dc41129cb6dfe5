"""``python -m benchmarks``: minips and its parts on this machine, each beside other systems in the same run.

Machines differ and are shared, so the tables hold ratios. All the contenders of one row stand ready together and take
turns, in an order that is drawn anew for each round; a ratio is the median over the rounds, with its quartiles. What is
not installed is a row that says what to install.

A module for each table, with the same three names: ``measure`` yields rows as they come, ``table`` shows them in a
terminal, ``chart`` says how to draw them. `base` is what they share; turns and races come from `minips.lab.measure`, as
in the lessons. What runs in the processes that they start stands apart, so that a child imports nothing else: `ways`
(one message there and back), `jobs` (a training run), and `with_ray` (both).
"""
