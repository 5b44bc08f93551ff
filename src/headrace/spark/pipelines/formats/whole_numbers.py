"""Whole numbers that were written with a point: 12.0 is 12, 12.5 is not.

A schema is relaxed by reading every whole number in it as a decimal; whatever has a fraction, or does not fit, is
found afterwards. Maps are left as they are.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, DataType, DecimalType, IntegralType, StructField, StructType

ROOM = DecimalType(38, 18)
"""A type with room for all digits of a bigint, and for more decimal places than a double has."""


def has_whole(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(has_whole(field.dataType) for field in kind.fields)
    return has_whole(kind.elementType) if isinstance(kind, ArrayType) else isinstance(kind, IntegralType)


def relaxed_type(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return relaxed(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(relaxed_type(kind.elementType), kind.containsNull)
    return ROOM if isinstance(kind, IntegralType) else kind


def relaxed(schema: StructType) -> StructType:
    return StructType([StructField(one.name, relaxed_type(one.dataType), one.nullable) for one in schema.fields])


def all_whole(value: Column, kind: DataType) -> Column:
    """Whether a value of the relaxed type is also one of the type itself. Null is."""
    if not has_whole(kind):
        return F.lit(True)
    if isinstance(kind, StructType):
        fields = [all_whole(value.getField(field.name), field.dataType) for field in kind.fields]
        return reduce(Column.__and__, fields)
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.coalesce(F.forall(value, lambda one: all_whole(one, element)), F.lit(True))
    return F.coalesce(value == value.try_cast(kind), value.isNull())


def with_whole(value: Column, kind: DataType) -> Column:
    """The value as one of the type itself, provided that `all_whole` holds."""
    if not has_whole(kind):
        return value
    if isinstance(kind, StructType):
        fields = [with_whole(value.getField(one.name), one.dataType).alias(one.name) for one in kind.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.transform(value, lambda one: with_whole(one, element))
    return value.try_cast(kind)
