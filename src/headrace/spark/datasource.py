"""`format("headrace")`: the entry point for reading and writing, batch and streaming.

Spark imports every package called `pyspark_*` when it looks for data sources, so this module imports little:
readers and writers come with their first use. Options are checked as early as Spark allows: at `load()` where it
asks for the schema, else when the reader is made.
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
    from headrace.spark.source.options import SourceOptions

SHORT_NAME = "headrace"


class HeadraceDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return SHORT_NAME

    def schema(self) -> str:
        from headrace.spark.arrow.columns import ALL_COLUMNS, SPARK_TYPES, USUAL_COLUMNS

        include_headers = _options_for_either(dict(self.options)).include_headers
        names = ALL_COLUMNS if include_headers else USUAL_COLUMNS
        return ", ".join(f"`{name}` {SPARK_TYPES[name]}" for name in names)

    def reader(self, schema: StructType) -> DataSourceReader:
        from headrace.spark.source.batch_reader import make_batch_reader

        return make_batch_reader(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from headrace.spark.source.stream_reader import HeadraceStreamReader

        return HeadraceStreamReader(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headrace.spark.sink.writer import make_batch_writer

        return make_batch_writer(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from headrace.spark.sink.writer import make_stream_writer

        return make_stream_writer(dict(self.options), schema, overwrite)


def _options_for_either(given: dict[str, str]) -> SourceOptions:
    """It is not known yet whether this will be a batch or a stream: refuse what both refuse."""
    from headrace.spark.errors import SourceError
    from headrace.spark.source.options import OptionError, parse_source_options

    try:
        return parse_source_options(given, streaming=False)
    except OptionError as of_batch:
        try:
            return parse_source_options(given, streaming=True)
        except OptionError as of_stream:
            # Only a batch has an end, so these options are not meant for a stream.
            means_batch = of_stream.option.lower().startswith("ending")
            raise SourceError(str(of_batch if means_batch else of_stream)) from None
