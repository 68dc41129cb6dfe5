"""Lesson 19: what is wrong, the piece of the solution, and what stands there instead."""

BROKEN = {
    "19.1": {
        "four workers": ("2 * (workers - 1), 2 * (workers - 1) / workers", "6, 1.5"),
        "one level more": ("(workers - 1).bit_length()", "workers.bit_length()"),
        "rounded down": ("(workers - 1).bit_length()", "(workers.bit_length() - 1)"),
        "once round": ("2 * (workers - 1), 2", "workers - 1, 2"),
        "in vain for few workers": ("latency * bandwidth", "1 + latency * bandwidth"),
        "the tree has no bytes": ("(tree_copies - ring_copies)", "ring_copies"),
        "bits": ("latency * bandwidth", "8 * latency * bandwidth"),
    },
    "19.2": {
        "one piece": ("return workers", "return 1"),
        "two pieces": ("return workers", "return 2"),
        "the last piece stays": ("0 <= goes < k", "0 <= goes < k - 1"),
        "a turn too few": ("last + k - 1 if last", "last + k - 2 if last"),
        "sums are handed on as parts": ("rank - 1, adds=False)", "rank - 1, adds=True)"),
        "parts replace": ("rank + 1, adds=True)", "rank + 1, adds=False)"),
        "round the end": ("to=after", "to=(after + 1) % workers - 1"),
        "all of it each time": ("range(goes, goes + 1)", "range(goes + 1)"),
    },
    "19.3": {
        "as they are listed": ("nx.dfs_preorder_nodes(graph)", "graph"),
        "rack by rack": (
            '[node for node in nx.dfs_preorder_nodes(graph) if node.startswith("worker")]',
            'sorted((node for node in graph if node.startswith("worker")), key=lambda node: [*graph[node]])',
        ),
        "the nearest switch first": ("nx.dfs_preorder_nodes(graph)", "nx.bfs_tree(graph, next(iter(graph)))"),
        "switches too": (' if node.startswith("worker")', ""),
        "the last is lost": ('startswith("worker")]', 'startswith("worker")][:-1]'),
        "twice round": ('startswith("worker")]', 'startswith("worker")] * 2'),
    },
}
