"""A network as a problem, and a codec as the communication hook of PyTorch's DistributedDataParallel."""

import dataclasses
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta

import numpy as np
import pytest
from scipy import sparse

import minips as ps

torch = pytest.importorskip("torch", reason="torch is used where it is installed, and in .ci/run")

dist = torch.distributed
pytestmark = pytest.mark.soak
X, Y, X_TEST, Y_TEST = ps.datasets.digits()
EPOCHS, BATCH, LR = 2, 32, 0.05
SILENCE = timedelta(seconds=60)


def cnn():
    nn = torch.nn
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def train_ddp(rank, ranks, where, name):
    """One rank's training: its parameters, the share of the dense bytes that it sent, its spans."""
    from minips.torch import codec_hook

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{where}", rank=rank, world_size=ranks, timeout=SILENCE)
    try:
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(cnn())
        hook = None
        if name == "exact":
            hook = codec_hook(ps.Codec())
            model.register_comm_hook(None, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
        rows, targets = torch.from_numpy(X), torch.from_numpy(Y)
        draws = torch.Generator().manual_seed(1)
        for _ in range(EPOCHS):
            order = torch.randperm(len(rows), generator=draws)
            for start in range(0, len(order) - ranks * BATCH + 1, ranks * BATCH):
                mine = order[start + rank * BATCH : start + (rank + 1) * BATCH]
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(rows[mine]), targets[mine]).backward()
                optimizer.step()
        share = hook.bytes_sent / hook.bytes_dense if hook else 1.0
        spans = hook.trace.seconds() if hook else {}
        return [p.detach().numpy() for p in model.parameters()], share, spans
    finally:
        dist.destroy_process_group()


def trained(name, where, ranks=2):
    file = f"{where}/{name}"
    with ProcessPoolExecutor(ranks, multiprocessing.get_context("spawn")) as pool:
        children = [pool.submit(train_ddp, rank, ranks, file, name) for rank in range(ranks)]
        return [child.result(240) for child in children]


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    return str(tmp_path_factory.mktemp("gloo"))


def test_an_exact_codec_gives_what_ddp_gives(where):
    (plain, *_), _ = trained("plain", where)
    (hooked, share, spans), (other, *_) = trained("exact", where)
    for ours, theirs, rank1 in zip(hooked, plain, other, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
        assert (ours == rank1).all()
    assert 1 < share < 1.1
    assert set(spans) >= {"quantize", "serialize", "transfer", "dequantize"}


def problem(net=cnn):
    from minips.torch import TorchProblem

    return TorchProblem(net, torch.nn.functional.cross_entropy, X[:400], Y[:400], X_TEST, Y_TEST)


CONFIG = ps.Config(workers=2, steps=6, batch_size=32, optimizer=ps.SGD(lr=0.1))


def test_a_network_trains_to_the_same_bits_on_all_engines():
    runs = [
        ps.train(problem(), CONFIG, engine=engine, progress=False) for engine in ("threads", "processes", "simulated")
    ]
    for name, values in runs[0].params.items():
        for other in runs[1:]:
            np.testing.assert_array_equal(other.params[name], values)


def test_dropout_draws_the_same_on_all_engines():
    from minips.torch import TorchProblem

    nn = torch.nn
    problem = TorchProblem(lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(64, 10)), nn.functional.cross_entropy, X, Y)
    config = ps.Config(workers=2, steps=4)
    runs = [ps.train(problem, config, engine=engine) for engine in ("threads", "processes", "simulated")]
    for run in runs[1:]:
        for name, p in runs[0].params.items():
            np.testing.assert_array_equal(p, run.params[name])
    plain = TorchProblem(lambda: nn.Sequential(nn.Identity(), nn.Linear(64, 10)), nn.functional.cross_entropy, X, Y)
    other = ps.train(plain, config, engine="simulated")
    assert not np.array_equal(other.params["1.weight"], runs[0].params["1.weight"])


def test_a_loaded_run_of_a_network_wants_its_problem(tmp_path):
    network = problem()
    run = ps.train(network, ps.Config(workers=1, steps=2), engine="threads")
    run.save(tmp_path / "run.npz")
    with pytest.raises(
        ValueError, match=r"which the file of this run does not hold. Give the problem: Run.load\(path, p"
    ):
        ps.Run.load(tmp_path / "run.npz").predict(X_TEST)
    again = ps.Run.load(tmp_path / "run.npz", problem())
    np.testing.assert_array_equal(again.predict(X_TEST), run.predict(X_TEST))
    with np.load(tmp_path / "run.npz") as file:
        assert not [name for name in file.files if len(file[name].shape) == 2 and len(file[name]) == 400]


def test_a_network_learns_and_predicts_with_the_statistics_of_the_training_rows():
    ours = problem()
    run = ps.train(ours, dataclasses.replace(CONFIG, steps=80), engine="threads", progress=False)
    assert run.accuracy > 0.85
    outputs = ours.predict(run.params, X_TEST)
    assert (outputs.argmax(1) == Y_TEST).mean() == run.accuracy
    net = ours.module(run.params)
    first = net[:2](torch.from_numpy(X[:400]))
    np.testing.assert_allclose(net[2].running_mean.numpy(), first.mean((0, 2, 3)).detach().numpy(), atol=1e-5)


def test_statistics_behind_a_dropout_are_the_same_at_each_call():
    nn = torch.nn
    ours = problem(lambda: nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(64), nn.Linear(64, 10)))
    params = ours.init(np.random.default_rng(0))
    loss, state = ours.loss(params), torch.get_rng_state()
    assert ours.loss(params) == loss
    np.testing.assert_array_equal(ours.predict(params, X_TEST), ours.predict(params, X_TEST))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_check_takes_a_network_that_drops_values():
    nn = torch.nn
    layers = lambda: nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 10))  # noqa: E731
    ours = problem(layers)
    params = ours.init(np.random.default_rng(0))
    plain, again = ours.gradient(params), ours.gradient(params)
    drawn = ours.loss_and_gradient(params, rng=np.random.default_rng(1))[1]
    for name, g in plain.items():
        np.testing.assert_array_equal(g, again[name])
    assert any(not np.array_equal(g, drawn[name]) for name, g in plain.items())
    ps.testing.check(ours)


def test_the_gradient_is_that_of_finite_differences():
    def smooth():
        return torch.nn.Sequential(torch.nn.Linear(64, 3), torch.nn.Tanh(), torch.nn.Linear(3, 10)).double()

    from minips.torch import TorchProblem

    ours = TorchProblem(smooth, torch.nn.functional.cross_entropy, X[:50].astype(float), Y[:50])
    params = ours.init(np.random.default_rng(0))
    _, gradient = ours.loss_and_gradient(params)
    for name, g in gradient.items():
        where = np.unravel_index(np.argmax(np.abs(g)), g.shape)
        losses = []
        for step in (1e-6, -1e-6):
            moved = {key: p.copy() for key, p in params.items()}
            moved[name][where] += step
            losses.append(ours.loss(moved))
        assert (losses[0] - losses[1]) / 2e-6 == pytest.approx(g[where], rel=1e-5)


def test_what_makes_no_problem_is_refused_in_a_sentence():
    from minips.torch import TorchProblem

    entropy, net = torch.nn.functional.cross_entropy, torch.nn.Linear(64, 10)
    for make, loss, words in [
        (net, entropy, "takes a function that makes the network, .*got the network Linear"),
        (None, entropy, "takes a function that makes the network; got None"),
        (cnn, torch.nn.CrossEntropyLoss, "takes a loss, a function of outputs and y; got <class"),
        (cnn, None, "takes a loss, a function of outputs and y; got None"),
    ]:
        with pytest.raises(TypeError, match=words):
            TorchProblem(make, loss, X, Y)
    with pytest.raises(TypeError, match=r"takes a function that returns a torch\.nn\.Module; got 3"):
        TorchProblem(lambda: 3, entropy, X, Y).init(np.random.default_rng(0))
    for rows, words in [
        ((X, Y.astype(str)), r"takes y of numbers; got <U.*np\.unique"),
        ((X, Y, X, Y.astype(object)), "takes y_validation of numbers; got object"),
        ((sparse.csr_matrix(X), Y), r"takes dense rows; got X as a sparse matrix. Give X\.toarray"),
        ((np.ma.array(X), Y), "X is a masked array"),
    ]:
        with pytest.raises(ValueError, match=words):
            TorchProblem(cnn, entropy, *rows)
    ours = problem()
    with pytest.raises(ValueError, match="X is a masked array"):
        ours.predict(ours.init(np.random.default_rng(0)), np.ma.array(X_TEST))


def test_rows_and_losses_that_pytorch_refuses_are_told_in_a_sentence():
    from minips.torch import TorchProblem

    entropy, rng = torch.nn.functional.cross_entropy, np.random.default_rng(0)
    for rows, loss, error, words in [
        ((X.astype(float), Y), entropy, ValueError, r"does not take these rows \(float64 of shape .*astype"),
        ((X, Y + 5), entropy, ValueError, "does not take these rows .* out of bounds. Give"),
        ((X, Y), lambda outputs, y: 3.0, TypeError, "a loss that returns a tensor of one number; got 3.0"),
        ((X, Y), lambda outputs, y: entropy(outputs, y, reduction="none"), TypeError, "The loss must be one number"),
    ]:
        ours = TorchProblem(cnn, loss, *rows)
        for computed in (ours.loss_and_gradient, ours.loss):
            with pytest.raises(error, match=words):
                computed(ours.init(rng))
    with pytest.raises(ValueError, match=r"PyTorch has no tensor type for X, which is >f4"):
        TorchProblem(cnn, entropy, X.astype(">f4"), Y)
    ours = problem()
    params = ours.init(rng)
    np.testing.assert_array_equal(ours.predict(params, X_TEST.tolist()), ours.predict(params, X_TEST))
    with pytest.raises(ValueError, match=r"takes dense rows; got X as a sparse matrix"):
        ours.predict(params, sparse.csr_matrix(X_TEST))


def test_a_type_that_numpy_has_not_is_refused_with_the_tensors_name():
    with pytest.raises(ValueError, match=r"weight.*bfloat16"):
        problem(lambda: torch.nn.Linear(64, 10).bfloat16()).init(np.random.default_rng(0))
