"""Compares hooks of DistributedDataParallel on two processes: the bytes a rank passes to collectives, and accuracy."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch_cnn import make_net

import minips as ps
from minips.torch import codec_hook

STEPS = 300
low_rank = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=10)
HOOKS = {
    "all-reduce": (None, default_hooks.allreduce_hook),  # the same as without a hook
    "torch's fp16_compress": (None, default_hooks.fp16_compress_hook),
    "torch's PowerSGD of rank 2": (low_rank, powerSGD_hook.powerSGD_hook),
    "exact": (None, codec_hook(ps.Codec())),
    "float16": (None, codec_hook(ps.Codec(ps.Float16()))),
    "uniform, 8 bits": (None, codec_hook(ps.Codec(ps.Uniform(bits=8)))),
    "top 2 %, error feedback": (None, codec_hook(ps.Codec(ps.TopK(fraction=0.02), ps.ErrorFeedback()))),
    "PowerSGD of rank 2": (None, codec_hook(ps.Codec(ps.PowerSGD(rank=2), ps.ErrorFeedback()))),
}


def train(rank: int, folder: str) -> None:
    """Run one rank: a training run for each hook, all from the same parameters and with the same batches."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # nothing leaves this machine
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    sent: list[int] = []
    dist.all_reduce, dist.all_gather = count_bytes(dist.all_reduce, sent), count_bytes(dist.all_gather, sent)
    X, y, X_new, y_new = map(torch.from_numpy, ps.datasets.digits())
    for name, (state, hook) in HOOKS.items():
        sent.clear()
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(make_net())
        model.register_comm_hook(state, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, STEPS)
        for _ in range(STEPS):
            rows = torch.randint(len(X), (64,))[rank::2]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(X[rows]), y[rows]).backward()
            optimizer.step()
            decay.step()
        accuracy = (model(X_new).argmax(1) == y_new).float().mean()
        dense = STEPS * sum(p.nbytes for p in model.parameters())
        if rank == 0:
            print(f"{name:27} {sum(sent) / dense:7.2%} of the bytes, accuracy {accuracy:.3f}", flush=True)
    dist.destroy_process_group()


def count_bytes(collective, sent):
    """Wrap a collective so that it records the bytes of its last argument."""

    def wrapped(*given, **options):
        sent.append(given[-1].nbytes)
        return collective(*given, **options)

    return wrapped


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, args=(folder,), nprocs=2)
