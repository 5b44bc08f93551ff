"""The options that a source or sink of a pipeline can have, beside those of the format `headrace`.

Spark ignores an option that it does not know, so a typo would silently change what is read or written. `pipeline
check` compares names with these tables, and docs/pipeline-reference.md is generated from them. Options of a format
have its name in front (`csv.sep`). They reach Spark's functions for single values, `from_csv` and the like, for
which many options of Spark's file readers have no meaning; these are listed separately.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.spark.option_table import Option

SOURCE, SINK = "source", "sink"
"""Values of `Option.use`: where an option has a meaning, if not in both."""

FRAMINGS = ("none", "confluent")
"""Values of `avro.framing`."""

_DATES = (
    Option("dateFormat", "`yyyy-MM-dd`", "How dates are written, in Spark's pattern letters."),
    Option("timestampFormat", "ISO 8601", "How times with a zone are written."),
    Option("timestampNTZFormat", "ISO 8601", "How times without a zone are written."),
    Option("timeFormat", "`HH:mm:ss`", "How times of the day are written."),
    Option("timeZone", "UTC", "The zone of times that are written without one."),
    Option("locale", "`en-US`", "The language of the names of months and days."),
    Option("enableDateTimeParsingFallback", "", "Whether other patterns are tried as well.", SOURCE),
)

FORMAT_OPTIONS: Mapping[str, tuple[Option, ...]] = {
    "csv": (
        Option("sep", "`,`", "Separator between columns. `delimiter` is the same."),
        Option("delimiter", "`,`", "Separator between columns. `sep` is the same."),
        Option("quote", '`"`', "Quote character around a column that contains the separator."),
        Option("escape", '`"`', "Escape character for quotes inside quotes."),
        Option("charToEscapeQuoteEscaping", "", "Escape character for the escape character itself."),
        Option("escapeQuotes", "`true`", "Whether a column with a quote in it is put in quotes.", SINK),
        Option("quoteAll", "`false`", "Whether every column is put in quotes.", SINK),
        Option("header", "`false`", "Files only: whether each begins with the names of the columns.", SOURCE),
        Option("comment", "", "Files only: lines that start with this character are skipped.", SOURCE),
        Option("nullValue", "empty", "Text for null."),
        Option("emptyValue", "empty", "Text for an empty string."),
        Option("nanValue", "`NaN`", "Text for NaN.", SOURCE),
        Option("positiveInf", "`Inf`", "Text for infinity.", SOURCE),
        Option("negativeInf", "`-Inf`", "Text for minus infinity.", SOURCE),
        Option("ignoreLeadingWhiteSpace", "`false`; sink `true`", "Whether spaces before a value are dropped."),
        Option("ignoreTrailingWhiteSpace", "`false`; sink `true`", "Whether spaces after a value are dropped."),
        Option("maxCharsPerColumn", "`-1`", "A longer value fails the pipeline; -1: no limit.", SOURCE),
        Option("maxColumns", "`20480`", "A line with more columns fails the pipeline.", SOURCE),
        Option("unescapedQuoteHandling", "`STOP_AT_DELIMITER`", "What a quote inside a bare value does.", SOURCE),
        *_DATES,
    ),
    "json": (
        Option("allowComments", "`false`", "Whether Java-style comments are skipped.", SOURCE),
        Option("allowSingleQuotes", "`false`", "Whether `'` may stand for `\"`.", SOURCE),
        Option("allowUnquotedFieldNames", "`false`", "Whether names need no quotes.", SOURCE),
        Option("allowNumericLeadingZeros", "`false`", "Whether `007` is a number.", SOURCE),
        Option("allowNonNumericNumbers", "`true`", "Whether `NaN` and `Infinity` are numbers.", SOURCE),
        Option("allowBackslashEscapingAnyCharacter", "`false`", "Whether `\\` may escape any character.", SOURCE),
        Option("allowUnquotedControlChars", "`false`", "Whether strings may contain tabs and newlines.", SOURCE),
        Option("ignoreNullFields", "`true`", "Whether a column that is null is left out.", SINK),
        Option("pretty", "`false`", "Whether it is written on many lines.", SINK),
        Option("sortKeys", "`false`", "Whether map keys are sorted.", SINK),
        Option("writeNonAsciiCharacterAsCodePoint", "`false`", "Whether `é` is written `\\u00e9`.", SINK),
        *_DATES,
    ),
    "avro": (
        Option("framing", "`none`", "`confluent`: five bytes with the schema id precede each record."),
        Option("schema_id", "", "With `framing: confluent`: the id that is written.", SINK),
    ),
    "text": (),
}

_LINES_NEED_NONE = "a value is one record, wherever its lines end"
_NOT_INFERRED = "columns and types are those of schema"
_NOT_COMPRESSED = "values are not files: kafka.compression.type compresses batches of a topic"
_BAD_RECORDS = "malformed records go to the topic dead_letter"
FILES_ONLY: Mapping[str, str] = {
    "header": "a record of a topic has no header",
    "comment": "a record of a topic is never a comment",
}
WITHOUT_USE: Mapping[str, str] = {
    "charset": "values are text in UTF-8",
    "codec": _NOT_COMPRESSED,
    "columnnameofcorruptrecord": _BAD_RECORDS,
    "columnpruning": "all columns of schema are read",
    "compression": _NOT_COMPRESSED,
    "dropfieldifallnull": _NOT_INFERRED,
    "encoding": "values are text in UTF-8",
    "enforceschema": _NOT_INFERRED,
    "explodeembeddedarray": "a value is one record",
    "extension": "values are not files",
    "infertimestamp": _NOT_INFERRED,
    "inferschema": _NOT_INFERRED,
    "inputbuffersize": "values are read one by one",
    "linesep": _LINES_NEED_NONE,
    "mode": _BAD_RECORDS,
    "multiline": _LINES_NEED_NONE,
    "preferdate": _NOT_INFERRED,
    "prefersdecimal": _NOT_INFERRED,
    "primitivesasstring": _NOT_INFERRED,
    "samplingratio": _NOT_INFERRED,
    "singlevariantcolumn": _NOT_INFERRED,
    "useunsaferow": "Spark uses it by itself",
}
"""Options of Spark's file readers and writers that single values do not use, with the reason, in lower case."""

_FOUND_FILES = (
    Option("maxFilesPerTrigger", "", "Maximum number of new files per micro-batch."),
    Option("maxBytesPerTrigger", "", "Approximate maximum bytes of new files per micro-batch."),
    Option("latestFirst", "`false`", "Whether new files come before old ones."),
    Option("maxFileAge", "`7d`", "Files this much older than the newest are ignored."),
    Option("fileNameOnly", "`false`", "Whether files are identified by name alone, ignoring the folder."),
    Option("maxCachedFiles", "`10000`", "How many listed files are cached for the next micro-batches."),
    Option(
        "discardCachedInputRatio",
        "`0.2`",
        "When less than this share of the cache is left, the folder is listed again.",
    ),
    Option("cleanSource", "`off`", "`archive` or `delete`: what to do with files that have been read."),
    Option("sourceArchiveDir", "", "Destination of `archive`."),
    Option("pathGlobFilter", "", "Only files whose name matches this pattern."),
    Option("recursiveFileLookup", "`false`", "Whether folders inside are searched."),
    Option("modifiedBefore", "", "Only files changed before this time; of a table."),
    Option("modifiedAfter", "", "Only files changed after this time; of a table."),
    Option("ignoreCorruptFiles", "`false`", "Whether unreadable files are skipped."),
    Option("ignoreMissingFiles", "`false`", "Whether missing files are skipped."),
)
_REBASE = (
    Option("datetimeRebaseMode", "`CORRECTED`", "How dates of very old writers are read."),
    Option("int96RebaseMode", "`CORRECTED`", "The same for times in the old type INT96."),
)

FILE_OPTIONS = (
    *_FOUND_FILES,
    Option("lineSep", "any line end", "What ends a line."),
    Option("encoding", "UTF-8", "How the files are encoded."),
    Option("wholetext", "`false`", "Whether a whole file is one value."),
)
"""The options of JSON, CSV and text files, which are read line by line."""
PARQUET_FILE_OPTIONS = (
    *_FOUND_FILES,
    Option("mergeSchema", "`false`", "Whether the columns of all files are put together, when none are declared."),
    *_REBASE,
)
PARQUET_SINK_OPTIONS = (
    Option("compression", "`snappy`", "`none`, `snappy`, `gzip`, `lz4`, `zstd` or `brotli`."),
    Option("maxRecordsPerFile", "", "Maximum rows per file."),
    Option("timeZone", "UTC", "The zone of times that name a folder (`partition_by`)."),
    Option("parquet.compression", "", "The same as `compression`."),
    Option("parquet.block.size", "`134217728`", "Bytes of a row group."),
    Option("parquet.page.size", "`1048576`", "Bytes of a page, the smallest part that is read."),
    Option("parquet.page.row.count.limit", "`20000`", "Rows of a page."),
    Option("parquet.dictionary.page.size", "`1048576`", "Bytes of a dictionary."),
    Option("parquet.enable.dictionary", "`true`", "Whether repeated values are dictionary-encoded."),
    Option("parquet.bloom.filter.enabled", "`false`", "Bloom filters; of one column: `...enabled#id`."),
    Option("parquet.bloom.filter.expected.ndv", "", "How many values such a filter is made for: `...ndv#id`."),
    Option("parquet.writer.version", "`v1`", "`v1` or `v2`."),
)
DELTA_OPTIONS = (Option("storage.*", "", "Settings of the object store, as `storage.AWS_ENDPOINT_URL`."),)
DELTA_FILE_OPTIONS = (
    Option("startingVersion", "the whole table", "The first version of the table that a stream reads."),
    *DELTA_OPTIONS,
)
CONSOLE_OPTIONS = (
    Option("numRows", "`20`", "Maximum rows shown per micro-batch."),
    Option("truncate", "`false`", "Whether long values are cut, or after how many characters."),
)

OPTION_SECTIONS: Mapping[str, tuple[Option, ...]] = {
    "Options of csv": FORMAT_OPTIONS["csv"],
    "Options of json": FORMAT_OPTIONS["json"],
    "Options of avro": FORMAT_OPTIONS["avro"],
    "Options of files": FILE_OPTIONS,
    "Options of Parquet files": PARQUET_FILE_OPTIONS,
    "Options of a Parquet sink": PARQUET_SINK_OPTIONS,
    "Options of a Delta table that is read": DELTA_FILE_OPTIONS,
    "Options of a Delta sink": DELTA_OPTIONS,
    "Options of the console": CONSOLE_OPTIONS,
}
