"""``minips bench``: what the parts cost on this machine, each beside references of the same run.

Machines differ and are shared, so the tables hold ratios. All the contenders of one row stand ready together and take
turns, in an order that is drawn anew for each round; a ratio is the median over the rounds, with its quartiles. What is
not installed is a row that says what to install.

A module for each table, with the same three names: ``measure`` yields rows as they come, ``table`` shows them in a
terminal, ``chart`` says how to draw them. `base` is what they share. What runs in the processes that they start stands
apart, so that a child imports nothing else: `trips` (one message there and back), `jobs` (a training run), and both of
them `with_torch` and `with_ray`.
"""
