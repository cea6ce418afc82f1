"""Minimum and maximum of floats that do not depend on the order of rows.

In DataFusion's grouped MIN and MAX the result depends on the place of a NaN and on the sign of
the first zero (apache/datafusion#24432), and the maximum of only -inf is the smallest finite
number (apache/datafusion#13415). So DataFusion aggregates the finite numbers, plus zero, and
beside them the class of each number. NaN is greater than every other number, -0.0 is 0.0.
"""

import pyarrow as pa
from datafusion import functions as f
from datafusion import lit
from datafusion.expr import Expr

_MINUS_INFINITE, _FINITE, _INFINITE, _NAN = range(4)
_SPECIAL = {_MINUS_INFINITE: -float("inf"), _INFINITE: float("inf"), _NAN: float("nan")}


def extreme_parts(
    value: Expr, kind: pa.DataType, is_min: bool, name: str, class_name: str
) -> list[Expr]:
    """Returns two aggregations of a float column: the finite extreme and the extreme class."""
    extreme = f.min if is_min else f.max
    number_class = _number_class(value, kind)
    is_finite = (number_class == lit(_FINITE)) & value.is_not_null()
    zero = lit(pa.scalar(0.0, kind))
    return [
        extreme(value + zero, filter=is_finite).alias(name),
        extreme(number_class, filter=value.is_not_null()).alias(class_name),
    ]


def extreme_value(finite: Expr, number_class: Expr, kind: pa.DataType) -> Expr:
    """Returns the extreme from the results of `extreme_parts`."""
    value = f.case(number_class)
    for place, special in _SPECIAL.items():
        value = value.when(lit(place), lit(pa.scalar(special, kind)))
    return value.otherwise(finite)


def _number_class(value: Expr, kind: pa.DataType) -> Expr:
    """Returns the class of the float. Classes are numbered in the order of their values."""
    number_class = f.when(f.isnan(value), lit(_NAN))
    for place in (_MINUS_INFINITE, _INFINITE):
        number_class = number_class.when(value == lit(pa.scalar(_SPECIAL[place], kind)), lit(place))
    return number_class.otherwise(lit(_FINITE))
