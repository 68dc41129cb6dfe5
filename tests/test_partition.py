"""Tensors cut into contiguous ranges, near-equal in bytes, and joined again."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minips.core.partition import cut, join, partition

shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
tensors = st.dictionaries(
    st.text(min_size=1, max_size=3), st.tuples(shapes, st.sampled_from(["f2", "f4", "f8"])), max_size=5
)


def filled(description):
    rng = np.random.default_rng(0)
    return {name: np.asarray(rng.normal(size=shape), dtype) for name, (shape, dtype) in description.items()}


@settings(deadline=None, max_examples=150)
@given(tensors, st.integers(1, 7))
def test_ranges_are_contiguous_and_complete(description, servers):
    whole = filled(description)
    layouts = partition(whole, servers)
    assert len(layouts) == servers
    for name, x in whole.items():
        parts = [layout[name] for layout in layouts if name in layout]
        assert parts
        assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
        assert parts[-1].stop == x.size
        assert all((part.shape, part.dtype) == (x.shape, x.dtype.name) for part in parts)


@settings(deadline=None, max_examples=150)
@given(tensors, st.integers(1, 7))
def test_servers_hold_nearly_equal_bytes(description, servers):
    whole = filled(description)
    held = [sum(piece.nbytes for piece in cut(whole, layout).values()) for layout in partition(whole, servers)]
    assert sum(held) == sum(x.nbytes for x in whole.values())
    assert all(abs(each - sum(held) / servers) <= 8 for each in held)


@settings(deadline=None, max_examples=150)
@given(tensors, st.integers(1, 7))
def test_join_is_the_inverse_of_cut(description, servers):
    whole = filled(description)
    layouts = partition(whole, servers)
    joined = join([cut(whole, layout) for layout in layouts], layouts)
    assert joined.keys() == whole.keys()
    for name, x in whole.items():
        np.testing.assert_array_equal(joined[name], x, strict=True)


def test_tensors_lie_one_behind_the_other():
    layouts = partition({"a": np.zeros(3, "f4"), "b": np.zeros(5, "f4"), "c": np.zeros(4, "f4")}, 3)
    assert [list(layout) for layout in layouts] == [["a", "b"], ["b"], ["c"]]


def test_more_servers_than_values_leave_some_with_nothing():
    layouts = partition({"w": np.zeros(2)}, 5)
    assert sorted(len(layout) for layout in layouts) == [0, 0, 0, 1, 1]


def test_a_tensor_in_one_range_keeps_its_shape_and_a_cut_one_is_flat():
    whole = {"W": np.arange(6.0).reshape(2, 3), "v": np.arange(2.0).reshape(1, 2)}
    first, second = (cut(whole, layout) for layout in partition(whole, 2))
    assert first["W"].shape == (4,)
    assert (second["W"].shape, second["v"].shape) == ((2,), (1, 2))


def test_a_cut_of_a_contiguous_tensor_is_a_view():
    w = np.zeros(8)
    for layout in partition({"w": w}, 2):
        assert np.shares_memory(cut({"w": w}, layout)["w"], w)


def test_a_tensor_that_is_not_contiguous_is_cut_in_its_own_order():
    whole = {"W": np.arange(12.0).reshape(3, 4).T}
    layouts = partition(whole, 2)
    np.testing.assert_array_equal(join([cut(whole, layout) for layout in layouts], layouts)["W"], whole["W"])


@pytest.mark.parametrize("servers", [1, 2])
def test_what_is_joined_can_be_written(servers):
    w = np.zeros(4)
    w.flags.writeable = False
    layouts = partition({"w": w}, servers)
    assert join([cut({"w": w}, layout) for layout in layouts], layouts)["w"].flags.writeable
