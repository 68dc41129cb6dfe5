"""A question before you rent eight machines with links of 10 Gbit/s: two parameter servers, or a ring?

The model has 25 MB, and a step computes for 80 ms. Do eight bits help? Closed forms and a simulation give the answers.
"""

import minips as ps

if __name__ == "__main__":
    cluster = ps.cost.Cluster(machines=8, bandwidth_bps=10e9, latency_s=50e-6, compute_s=0.08)
    table = cluster.compare(nbytes=25e6, ways=["ps:servers=2", "ring"], codecs=["exact", "uniform"])
    print(table)

    best = min(table.rows, key=lambda row: row["simulated (s)"])
    step_s = best["simulated (s)"]
    print(f"\nThe fastest: {best['way']} with {best['codec']}, {step_s * 1e3:.0f} ms a step, ", end="")
    print(f"of which {cluster.compute_s / step_s:.0%} is computing.")

    print("\nAnd with faster links?")
    for gigabits in 1, 10, 25, 100:
        faster = cluster.with_({"bandwidth_bps": gigabits * 1e9})
        servers, ring = (row["simulated (s)"] for row in faster.compare(25e6, ["ps:servers=2", "ring"]).rows)
        print(f"{gigabits:4} Gbit/s: two servers {servers * 1e3:5.0f} ms, a ring {ring * 1e3:5.0f} ms")
