"""Train one model many times and find the Pareto front: the runs that no other run beats in bytes sent and in loss."""

import minips as ps

if __name__ == "__main__":
    problem = ps.SoftmaxRegression(*ps.datasets.digits())
    base = ps.Config(
        workers=2, push=ps.Codec("topk", memory="errorfeedback"), transport="inproc", optimizer=ps.SGD(lr=0.5)
    )
    configs = [
        base.with_({"push.quantizer.fraction": fraction, "steps": steps})
        for fraction in (0.01, 0.05, 1.0)
        for steps in (20, 60, 120)
    ]
    table = ps.RunTable(ps.sweep(problem, configs, engine="threads"))
    print(table)  # table.to_frame() is a pandas DataFrame

    print("\nOn the Pareto front:")
    for row in table.pareto():  # ps.lab.plots.pareto(table) draws it
        share, size = row["push.quantizer.fraction"], row["bytes_sent"] / 1e6
        print(f"  {row['steps']} steps of {share:.0%}: {size:.3f} MB, loss {row['validation_loss']:.3f}")
