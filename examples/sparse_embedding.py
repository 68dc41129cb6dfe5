"""An embedding of 100,000 words. A step needs only eight of its rows, so only those are pulled, pushed and updated."""

import numpy as np

import minips as ps

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(100_000, 16)).astype(np.float32)
    config = ps.Config(workers=1, optimizer=ps.SGD(lr=0.5))
    with (
        ps.Server({"embedding": np.zeros_like(truth)}, config, tables=("embedding",)).serve() as server,
        ps.connect(server.address, config, token=server.token) as client,
    ):
        words, rows = np.arange(8), np.zeros_like(truth[:8])
        for step in range(101):
            error = rows - truth[words]
            pushed = {"embedding": ps.Rows(words, error)}
            words = np.unique(rng.zipf(1.5, size=8) % len(truth))  # for the next step: frequent and rare words
            rows = client.push_pull(pushed, rows={"embedding": words}).result()["embedding"]
            if step % 25 == 0:
                print(f"step {step:3}: loss {np.square(error).mean():.3f}")
        sent, received = client.bytes_sent / (step + 1), client.bytes_received / (step + 1)
        print(f"{sent:.0f} B there and {received:.0f} B back in a step; the whole embedding has {truth.nbytes:,} B")
