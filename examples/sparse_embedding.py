"""An embedding of 100,000 words of which a step needs eight: those rows alone travel, both ways.

A pull takes the rows that are wanted. A push does not yet: its gradient is as large as the tensor, zeros at all other
rows, and the server's step goes over all of it. On the wire `Threshold` leaves the zeros out: it sends the other values
and where they belong, which is twice the bytes of the rows.
"""

import numpy as np

import minips as ps

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(100_000, 16)).astype(np.float32)
    not_zero = ps.Codec(quantizer=ps.Threshold(value=1e-12))
    config = ps.Config(push=not_zero, workers=1, optimizer=ps.SGD(lr=0.5))
    with (
        ps.Server({"embedding": np.zeros_like(truth)}, config).serve() as server,
        ps.connect(server.address, config, token=server.token) as client,
    ):
        for step in range(101):
            words = np.unique(rng.zipf(1.5, size=8) % len(truth))  # frequent ones and rare ones
            rows = client.pull(rows={"embedding": words.tolist()}).result()["embedding"]
            error = rows - truth[words]
            gradient = np.zeros_like(truth)
            gradient[words] = error
            client.push({"embedding": gradient}).result()
            if step % 25 == 0:
                print(f"step {step:3}: loss {np.square(error).mean():.3f}")
        sent, received = client.bytes_sent / (step + 1), client.bytes_received / (step + 1)
        print(f"{sent:.0f} B there and {received:.0f} B back in a step; the whole embedding has {truth.nbytes:,} B")
