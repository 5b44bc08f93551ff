"""`format("headrace_delta")`: Delta tables as a sink and a source, batch and stream.

    rows.writeStream.format("headrace_delta").option("path", table).option("checkpointLocation", c).start()
    spark.readStream.format("headrace_delta").load(table)

Imports little, since Spark imports it whenever it looks for any data source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from headrace.spark.delta.table import TableOptions

SHORT_NAME = "headrace_delta"


class DeltaDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return SHORT_NAME

    def schema(self) -> StructType:
        from headrace.spark.delta.table import open_table, spark_schema

        return spark_schema(open_table(self._options()))

    def reader(self, schema: StructType) -> DataSourceReader:
        from headrace.spark.delta.reading import DeltaReader

        return DeltaReader(self._options(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from headrace.spark.delta.reading import DeltaStreamReader

        return DeltaStreamReader(self._options(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headrace.spark.delta.writing import DeltaWriter

        return DeltaWriter(self._options(), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from headrace.spark.delta.writing import DeltaStreamWriter

        return DeltaStreamWriter(self._options(), schema, overwrite)

    def _options(self) -> TableOptions:
        from headrace.spark.delta.table import parse_options

        return parse_options(dict(self.options))
