"""Convert users' data to arrays, numbers, rows or labels, and explain in a sentence if that is impossible.

Each error names the checked data (X, y_validation, …; the argument ``what``) and the column or row that does not fit.
"""

import reprlib
import sys
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]
NUMBERS = "biufO"
"""The dtype kinds that hold real numbers, or objects that may be real numbers."""
EXACT = 2**53
"""Above this, one float may represent several whole numbers."""


def as_array(given: Any, what: str) -> Array:
    """``given`` as an array of the same values. Raises ValueError for a masked array: its hidden values would be used.

    A list becomes an array of objects if NumPy would change values: numbers in a list with texts, NULs ending a text.
    """
    if type(given) is np.ndarray:
        return given
    check_unmasked(given, what)
    try:
        array = np.asanyarray(given)
    except ValueError as error:  # such as rows of unequal length
        raise ValueError(f"{what} cannot be made an array: {error}") from error
    check_unmasked(array, what)  # another library's object may convert to a masked array
    array = np.asarray(array)
    if array.dtype.kind in "SU" and isinstance(given, list | tuple):
        objects = np.array(given, object)
        if objects.tolist() != array.tolist():
            return objects
    return array


def check_unmasked(given: Any, what: str) -> None:
    """Raise ValueError if ``given`` is a masked array, or a list that holds one."""
    ma = sys.modules.get("numpy.ma")  # slow to import; no array is masked before the program imports it
    if ma is not None and _holds(given, ma.MaskedArray):
        raise ValueError(
            f"{what} is a masked array, and minips would compute with the values that its mask hides. Give "
            ".filled(value), or the rows without a masked value; .data, if no value is to be left out."
        )


def _holds(given: Any, kind: type) -> bool:
    if isinstance(given, list | tuple):
        return any(_holds(one, kind) for one in given)
    return isinstance(given, kind)


def as_number(given: Any, what: str) -> float:
    """Convert a number, or an array of one, to a float. ValueError for masked arrays, TypeError for other values."""
    if type(given) is float:
        return given
    check_unmasked(given, what)
    one = given
    if isinstance(given, np.ndarray | np.generic):
        one = given.reshape(-1)[0] if given.size == 1 and given.dtype.kind in "biuf" else None
    try:
        if isinstance(one, SupportsFloat):
            return float(one)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # such as a tensor of several values
        pass
    got = f"an array of shape {given.shape}" if isinstance(given, np.ndarray) and given.ndim else reprlib.repr(given)
    raise TypeError(f"{what} must be one number, as the mean over the rows is; got {got}.")


def is_missing(x: Any) -> bool:
    """True for None and for values that do not equal themselves: NaN, NaT, pandas.NA, masked values."""
    if x is None:
        return True
    try:
        same = x == x
        return not same
    except TypeError:  # pandas.NA is neither true nor false
        return True
    except ValueError:  # an array
        return False


def as_rows(X: Any, y: Any, suffix: str = "") -> tuple[Array, Array]:
    """X as an array or a CSR matrix, and y as an array. Raises ValueError if one is missing or their lengths differ."""
    names = f"X{suffix}", f"y{suffix}"
    if X is None or y is None:
        given, missing = names if y is None else names[::-1]
        raise ValueError(f"{given} was given without {missing}; a problem takes both.")
    X, y = sparse_or_array(X, names[0]), as_array(y, names[1])
    for name, array in zip(names, (X, y), strict=True):
        if not array.ndim:
            raise ValueError(f"{name} must be an array of rows; got {reprlib.repr(array)}.")
    if X.shape[0] != len(y) or not len(y):
        raise ValueError(
            f"Expected as many rows of {names[0]} as of {names[1]}, and at least one; got {X.shape[0]} and {len(y)}."
        )
    return X, y


def sparse_or_array(X: Any, what: str) -> Any:
    """Convert a SciPy sparse matrix to CSR format, and anything else to an array."""
    return X.tocsr() if hasattr(X, "tocsr") else as_array(X, what)


def row_weights(weights: Any, rows: int) -> Array:
    """The rows' weights, scaled to mean 1. Raises ValueError if one is negative or not finite, or if all are 0."""
    given = as_array(weights, "The array of weights")
    if given.shape != (rows,) or given.dtype.kind not in "biuf":
        raise ValueError(f"Expected a number as weight for each of {rows} rows; got {given.dtype} of {given.shape}.")
    fit = np.isfinite(given) & (given >= 0)
    if not fit.all():
        row = int(np.argmin(fit))
        raise ValueError(f"A weight must be finite and at least 0; got {given[row]} for row {row}.")
    if not given.any():
        raise ValueError("All weights are 0. Give some of the rows a weight above 0.")
    with np.errstate(over="ignore"):
        mean = given.mean(dtype=float)
    if mean in (0, np.inf):  # the sum leaves the range of float64
        return row_weights(given / given.max(), rows)
    return np.asarray(given / mean)


def check_penalty(l2: Any) -> None:
    """Raise ValueError unless the penalty's factor ``l2`` is a finite number of at least 0."""
    if not isinstance(l2, Real) or not 0 <= float(l2) < np.inf:
        raise ValueError(f"l2 must be a finite number of at least 0; got {l2!r}.")


def as_count(given: Any, what: str) -> int:
    """``given`` as an int. Raises ValueError unless it is a whole number of at least 1."""
    if not isinstance(given, Integral) or isinstance(given, bool) or given < 1:
        raise ValueError(f"{what} must be a whole number of at least 1; got {given!r}.")
    return int(given)


def check_alike(name: str, held_out: Array, trained: Array) -> None:
    """Raise ValueError if held-out and training rows differ in shape, or if only one of the two contains numbers."""
    if held_out.shape[1:] != trained.shape[1:]:
        raise ValueError(
            f"{name}_validation has the shape {held_out.shape}, {name} has {trained.shape}. Reshape one of them, so "
            "that a held-out row has the shape of a training row."
        )
    kinds = held_out.dtype.kind, trained.dtype.kind
    if "O" not in kinds and (kinds[0] in NUMBERS) != (kinds[1] in NUMBERS):
        raise ValueError(
            f"{name}_validation holds {held_out.dtype}, {name} holds {trained.dtype}. Give both as numbers, or neither."
        )


def column_names(given: Any) -> list[Any] | None:
    """A data frame's column names, with dates and other objects converted to texts; None for anything else."""
    columns = getattr(given, "columns", None)
    return [*map(_plain_name, columns)] or None if isinstance(columns, Iterable) else None


def _plain_name(name: Any) -> Any:
    """A name in a form that a saved run can hold."""
    if isinstance(name, tuple):
        return tuple(map(_plain_name, name))
    return name if isinstance(name, str | int) else str(name)


def check_columns(given: Any, trained: Sequence[Any] | None, what: str) -> None:
    """Raise ValueError if a data frame's columns, or their order, differ from those of the ``trained`` rows.

    A frame without names has column numbers, which are never compared with names.
    """
    names = column_names(given)
    if not names or not trained or names == list(trained) or are_numbers(names) != are_numbers(trained):
        return
    lacking, unknown = [n for n in trained if n not in names], [n for n in names if n not in trained]
    found = [f"lacks {_first_names(lacking)}"] if lacking else []
    found += [f"also has {_first_names(unknown)}"] if unknown else []
    if not found:
        ours, theirs = next((n, m) for n, m in zip(names, [*trained, None], strict=False) if n != m)
        found = [f"has {ours!r} in the place of {theirs!r}"]
    raise ValueError(
        f"The columns of {what} must be those of the training rows, in the same order: {what} {' and '.join(found)}. "
        f"Choose the columns {_first_names(trained)}."
    )


def _first_names(names: Sequence[Any]) -> str:
    """The first eight names, followed by … if there are more."""
    return ", ".join(map(repr, names[:8])) + ", …" * (len(names) > 8)


def are_numbers(names: Iterable[Any]) -> bool:
    """True if all column names are numbers, as in a frame without names."""
    return all(isinstance(name, int) for name in names)


def as_features(X: Any, what: str, names: Sequence[Any] | None) -> Any:
    """Rows as finite floats, shape (n, d). Raises ValueError, naming the column, if a value is not a finite number."""
    if X.dtype.kind not in NUMBERS:
        raise ValueError(f"A linear model takes numbers; got {what} of {X.dtype}. Convert them first.")
    if X.dtype.kind == "O":
        X = _from_objects(X, what, names)
    X = X if X.dtype.kind == "f" else X.astype(float)
    sparse = hasattr(X, "tocoo")
    finite = np.isfinite(X.data if sparse else X)
    if not finite.all():
        place = int(np.argmin(finite))
        row, column = divmod(place, X.shape[1])
        if sparse:
            row, column = X.tocoo().row[place], X.tocoo().col[place]
        raise ValueError(
            f"The column {_name(names, column)!r} of {what} holds {_not_finite(X[row, column])} in row {row}. Fill in "
            "a number, or leave out the row or the column."
        )
    return X


def _from_objects(X: Array, what: str, names: Sequence[Any] | None) -> Array:
    """Convert a table of objects to floats, with NaN for missing values."""
    floats = np.empty_like(X, dtype=float)
    for number, column in enumerate(X.T):
        try:
            floats[:, number] = _floats(column)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(
                f"The column {_name(names, number)!r} of {what} holds something that is not a number: {error}. Turn "
                "texts into columns of 0 and 1 by pandas.get_dummies(X), or by scikit-learn's OneHotEncoder in a "
                "pipeline before minips.sklearn.PSClassifier."
            ) from None
    return floats


def _floats(objects: Array) -> Array:
    """Convert objects to floats, missing ones to NaN. Raises TypeError, ValueError or OverflowError for non-numbers."""
    known = objects.copy()
    known[[is_missing(x) for x in objects]] = np.nan
    return known.astype(float)


def _not_finite(x: Any) -> str:
    return "NaN or no value" if np.isnan(x) else "infinity"


def _name(names: Sequence[Any] | None, column: int) -> Any:
    """The column's name, or its number if the data has no names."""
    return names[column] if names else int(column)


def check_table(X: Array, y: Array) -> None:
    """Raise ValueError unless X is a table and y has one dimension, as a linear model needs."""
    if X.ndim != 2 or y.ndim != 1:
        raise ValueError(f"Expected X of shape (rows, features) and y of shape (rows,); got {X.shape} and {y.shape}.")


def as_targets(y: Array, dtype: DTypeLike, what: str) -> Array:
    """A regression's targets in this dtype. Raises ValueError, naming the row, if a target is not finite in it."""
    if y.dtype.kind not in NUMBERS:
        raise ValueError(f"A linear model takes numbers; got {what} of {y.dtype}. Convert them first.")
    if y.dtype.kind == "O":
        try:
            y = _floats(y)
        except (TypeError, ValueError, OverflowError) as error:
            words = f"{what} holds something that is not a number: {error}. A regression takes numbers."
            raise ValueError(words) from None
    with np.errstate(over="ignore"):
        targets = y.astype(dtype)
    finite = np.isfinite(targets)
    if not finite.all():
        row = int(np.argmin(finite))
        if np.isfinite(y[row]):
            raise ValueError(
                f"{what} holds {y[row]} in row {row}, out of the range of {targets.dtype}, X's dtype. Scale {what}, or "
                "give X in float64."
            )
        raise ValueError(f"{what} holds {_not_finite(y[row])} in row {row}. Fill in a number, or leave out the row.")
    return targets


def check_labels(given: Any, what: str) -> None:
    """Raise ValueError for labels of several kinds, a missing label, or a text that ends with a NUL."""
    labels = as_array(given, what)
    if labels.dtype.kind in "OT" and labels.ndim and labels.size:
        _labels_of_one_kind(labels.ravel().tolist(), what)


def number_labels(y: Array, what: str) -> tuple[Array, Array | None]:
    """The class number of each row and, if the labels are texts or truth values, the sorted labels (otherwise None).
    Raises ValueError for labels of other kinds.
    """
    y = _plain_labels(y, what)
    if y.dtype.kind in "iu":
        return y, None
    labels, numbers = np.unique(y, return_inverse=True)
    return numbers, labels


def known_labels(y: Array, what: str, labels: Array | None) -> Array:
    """The class numbers of rows other than the training rows. Raises ValueError for an unknown label."""
    y = _plain_labels(y, what)
    if labels is None:
        if y.dtype.kind == "U":
            raise ValueError(f"{what} holds texts, y holds class numbers. Give both in the same form.")
        return y if y.dtype.kind in "iu" else y.astype(int)
    unknown = sorted({*y.tolist()} - {*labels.tolist()})
    if unknown:
        raise ValueError(f"{what} holds the class {unknown[0]!r}, and y does not.")
    return np.asarray(np.searchsorted(labels, y.astype(labels.dtype)))


def _plain_labels(y: Array, what: str) -> Array:
    """The labels as whole numbers of at least 0, texts, or truth values. Raises ValueError if that is impossible."""
    if y.dtype.kind in "OT":
        y = _labels_of_one_kind(y.tolist(), what)
    if y.dtype.kind == "f":
        y = _whole_numbers(y, what)
    if y.dtype.kind not in "biuU":
        raise ValueError(
            f"{what} takes class numbers, texts or truth values; got {y.dtype}. Number other labels with "
            "np.unique(y, return_inverse=True)[1]."
        )
    if y.dtype.kind == "i" and y.min() < 0:
        raise ValueError(f"{what} takes class numbers 0, 1, 2, …, or texts; it holds {y.min()}.")
    return y


def _labels_of_one_kind(labels: list[Any], what: str) -> Array:
    """Convert objects of one kind to an array of texts, truth values or floats."""
    for row, label in enumerate(labels):
        if is_missing(label):
            raise ValueError(f"{what} has {label!r} in place of a label in row {row}. Label the row, or leave it out.")
    first = _kind(labels[0])
    for row, label in enumerate(labels):
        if _kind(label) is not first:
            raise ValueError(
                f"{what} holds labels of several kinds, {labels[0]!r} in row 0 and {label!r} in row {row}. Give only "
                "texts, or only class numbers."
            )
        if first is str and label.endswith("\0"):
            raise ValueError(
                f"{what} holds {label!r} in row {row}: NumPy strips a NUL at the end of a text, which would make it "
                f"the class {label.rstrip(chr(0))!r}. Remove the NUL, or number the classes."
            )
    return np.array([float(min(label, EXACT)) for label in labels] if first is float else labels, first)


KINDS: tuple[tuple[Any, Any], ...] = (
    (bool, bool | np.bool_),
    (str, str),
    (bytes, bytes),
    (float, int | float | np.integer | np.floating),
)


def _kind(label: Any) -> Any:
    """The type that represents this label's kind."""
    return next((kind for kind, types in KINDS if isinstance(label, types)), object)


def _whole_numbers(y: Array, what: str) -> Array:
    """Convert floats without a fraction to whole numbers. Raises ValueError, naming the first row, for other values."""
    y = y.astype(float)
    whole = (np.abs(y) < EXACT) & (y == np.floor(y))
    if not whole.all():
        row = int(np.argmin(whole))
        if np.isnan(y[row]):
            raise ValueError(f"{what} has NaN in place of a label in row {row}. Label the row, or leave it out.")
        raise ValueError(
            f"{what} takes class numbers 0, 1, 2, …, or texts; it holds {y[row]} in row {row}. To fit values, use "
            "ps.LinearRegression."
        )
    return y.astype(np.int64)
