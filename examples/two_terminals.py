"""A server and two workers over TLS, each started by hand. First make a certificate for this machine:

openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -subj /CN=me -addext subjectAltName=IP:127.0.0.1

Then start this script, and start the command that it prints twice. ``minips serve`` and ``minips work`` need no script.
"""

import sys
from pathlib import Path

import numpy as np

import minips as ps

if __name__ == "__main__":
    problem = ps.SoftmaxRegression(*ps.datasets.digits())
    token = Path("token")
    if len(sys.argv) == 1:
        config = ps.Config(workers=2, steps=100, transport=ps.Tcp(certificate="cert.pem", key="key.pem"))
        params = problem.init(np.random.default_rng(0))
        with ps.Server(params, config, updates=200).serve("tcp://127.0.0.1:0") as server:
            token.touch(0o600)
            token.write_text(server.token)  # clients without the token are refused
            print(f"In two more terminals: python {sys.argv[0]} {server.address}", flush=True)
            print(server.wait(problem=problem).summary())
    else:
        transport = ps.Tcp(authority="cert.pem")  # a server with another certificate is refused
        done = ps.work(problem, sys.argv[1], token=token.read_text(), transport=transport)
        print(f"Worker {done.worker} has pushed {done.pushes} gradients, {done.bytes_sent:,} B.")
