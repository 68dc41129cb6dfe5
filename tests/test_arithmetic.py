"""One BLAS thread: set once, restored once, the same bits whatever was set before."""

import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import threadpoolctl

from minips import datasets
from minips.arithmetic import one_blas_thread

# OpenBLAS, MKL or BLIS; another one may not say how many threads it has.
pytestmark = pytest.mark.skipif(
    not threadpoolctl.ThreadpoolController().select(user_api="blas").info(), reason="threadpoolctl finds no BLAS here"
)


def blas_threads():
    return {one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"}


@pytest.fixture
def two_threads():
    with threadpoolctl.threadpool_limits(2, "blas"):
        yield


@pytest.mark.usefixtures("two_threads")
def test_blas_is_limited_inside_and_has_the_users_number_afterwards():
    with one_blas_thread:
        assert blas_threads() == {1}
        with one_blas_thread:
            pass
        assert blas_threads() == {1}
    assert blas_threads() == {2}


@pytest.mark.usefixtures("two_threads")
def test_an_exception_restores_the_users_number():
    with pytest.raises(LookupError), one_blas_thread:
        raise LookupError
    assert blas_threads() == {2}


@pytest.mark.usefixtures("two_threads")
def test_of_blocks_in_several_threads_the_last_one_restores():
    entered, leave = threading.Event(), threading.Event()

    def last():
        with one_blas_thread:
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=last)
    with one_blas_thread:
        thread.start()
        assert entered.wait(10)
    assert blas_threads() == {1}
    leave.set()
    thread.join(10)
    assert blas_threads() == {2}


@pytest.mark.usefixtures("two_threads")
def test_a_thread_limits_blas_although_another_one_set_its_number():
    seen = []

    def limited():
        with one_blas_thread:
            seen.append(blas_threads())

    thread = threading.Thread(target=limited)
    thread.start()
    thread.join(10)
    assert seen == [{1}]
    assert blas_threads() == {2}


def test_lifted_rows_have_the_same_bits_however_many_threads_blas_has():
    X, lifted = datasets.digits(dtype="f8").X, []
    for threads in (1, 2):
        with threadpoolctl.threadpool_limits(threads, "blas"):
            lifted.append(datasets.fourier(X, 500))
    np.testing.assert_array_equal(*lifted)


def test_full_batches_train_to_the_same_bits_on_every_engine():
    """Where nothing limits BLAS from outside, and the products are large enough to be shared among its threads."""
    program = """
    import hashlib

    import minips as ps

    problem, config = ps.MLP(*ps.datasets.digits()), ps.Config(workers=2, batch_size=None, steps=30)
    for engine in (ps.Threads(), ps.Processes(), ps.Simulated()):
        run = ps.train(problem, config, engine=engine)
        print(hashlib.sha256(b"".join(x.tobytes() for x in run.params.values())).hexdigest(), run.validation_loss)
    """
    surroundings = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert len(set(lines)) == 1
