"""Tables of pandas, polars, Arrow and datasets, for tests of what takes them or refuses them."""

import pytest

KINDS = ("pandas", "polars", "pyarrow", "datasets")


def table(kind, columns):
    """Returns columns as a library's table; skips the test if the library is not installed."""
    library = pytest.importorskip(kind)
    if kind == "datasets":
        return library.Dataset.from_dict(columns)
    return library.table(columns) if kind == "pyarrow" else library.DataFrame(columns)
