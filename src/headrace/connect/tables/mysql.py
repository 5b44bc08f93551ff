"""MySQL and MariaDB as a database of the table connectors, by PyMySQL.

    mysql://user:password@host:port/database?ssl_ca=ca.pem&ssl_cert=client.pem&ssl_key=client.key

With any of these settings the server must have TLS, and a certificate for its name, of that authority (by default
one that the system trusts).
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.connect.api import ConnectorError, TryAgain
from headrace.connect.options import INVALID_ADDRESS
from headrace.connect.schema import ColumnType
from headrace.connect.tables.database import FoundTable, Row, SqlDatabase

DEFAULT_PORT = 3306
TLS_SETTINGS = ("ssl_ca", "ssl_cert", "ssl_key")
PASSING = frozenset(
    {1040, 1050, 1053, 1060, 1077, 1158, 1159, 1160, 1161, 1205, 1213, 2002, 2003, 2006, 2013, 2055}
)
"""Errors that may pass: too many connections, a server that stops, lock waits, deadlocks, lost connections; and a
table or a column that another task has just made."""
_TYPES: Mapping[str, ColumnType] = {
    "tinyint": "integer",
    "smallint": "integer",
    "mediumint": "integer",
    "int": "integer",
    "bigint": "integer",
    "float": "float",
    "double": "float",
    "decimal": "decimal",
    "char": "text",
    "varchar": "text",
    "tinytext": "text",
    "text": "text",
    "mediumtext": "text",
    "longtext": "text",
    "binary": "bytes",
    "varbinary": "bytes",
    "tinyblob": "bytes",
    "blob": "bytes",
    "mediumblob": "bytes",
    "longblob": "bytes",
    "date": "date",
    "time": "time",
    "datetime": "timestamp",
    "timestamp": "timestamp",
    "json": "json",
}
_COLUMNS = (
    "SELECT column_name, data_type FROM information_schema.columns "
    "WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s ORDER BY ordinal_position"
)
_KEYS = (
    "SELECT index_name, column_name FROM information_schema.statistics "
    "WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s AND non_unique = 0 AND sub_part IS NULL "
    "ORDER BY index_name, seq_in_index"
)
_ZONE = re.compile(r"(?<=\d)(Z|[+-]00:00)$")


def tls_of(query: str) -> ssl.SSLContext | None:
    """As the settings of an address say; None where they say nothing."""
    given = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(given) - set(TLS_SETTINGS))
    if unknown:
        raise ConnectorError(f"connection: unknown setting {unknown[0]}; known are {', '.join(TLS_SETTINGS)}")
    if not given:
        return None
    try:
        context = ssl.create_default_context(cafile=given.get("ssl_ca"))
        if "ssl_cert" in given:
            context.load_cert_chain(given["ssl_cert"], given.get("ssl_key"))
    except OSError as error:
        raise ConnectorError(f"connection: the certificates cannot be read: {error}") from None
    return context


class MysqlDatabase(SqlDatabase):
    mark = "%s"
    types = {
        "boolean": "boolean",
        "integer": "bigint",
        "float": "double",
        "decimal": "decimal(65, 20)",
        "text": "longtext",
        "bytes": "longblob",
        "date": "date",
        "time": "time(6)",
        "timestamp": "datetime(6)",
        "timestamptz": "datetime(6)",
        "json": "json",
    }
    name_type = "varchar({}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    key_types = {"text": name_type.format(255), "bytes": "varbinary(255)"}
    same_types = frozenset({("boolean", "integer"), ("timestamptz", "timestamp")})

    def __init__(self, address: str) -> None:
        try:
            pymysql: Any = import_module("pymysql")
        except ImportError:
            raise ConnectorError("MySQL needs PyMySQL: pip install 'headrace[mysql]'") from None
        self._errors: Any = pymysql.err
        try:
            url = urlsplit(address)
            port = url.port or DEFAULT_PORT
        except ValueError:
            raise ConnectorError(INVALID_ADDRESS) from None
        tls = tls_of(url.query)
        with self._problems_told():
            self._connection = pymysql.connect(
                host=url.hostname or "localhost",
                port=port,
                user=unquote(url.username or ""),
                password=unquote(url.password or ""),
                database=unquote(url.path.strip("/")) or None,
                charset="utf8mb4",
                autocommit=True,
                client_flag=pymysql.constants.CLIENT.FOUND_ROWS,
                ssl=tls,
                init_command="SET time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES'",
            )
        if tls is not None and not self.rows("SHOW SESSION STATUS LIKE 'Ssl_cipher'")[0][1]:
            self.close()
            raise ConnectorError("MySQL: the server has no TLS, which the address asks for")

    @contextmanager
    def _problems_told(self) -> Iterator[None]:
        try:
            yield
        except self._errors.Error as error:
            code = error.args[0] if error.args else 0
            text = str(error.args[1] if len(error.args) > 1 else error)
            passing = code in PASSING or isinstance(error, self._errors.InterfaceError)
            kind = TryAgain if passing and "certificate verify failed" not in text else ConnectorError
            raise kind(f"MySQL says: {text} ({code})") from None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._problems_told():
            self._connection.begin()
        try:
            yield
        except BaseException:
            try:
                self._connection.rollback()
            except self._errors.Error:
                pass  # the connection is gone, and the transaction with it
            raise
        with self._problems_told():
            self._connection.commit()

    def rows(self, statement: str, values: Row = ()) -> list[tuple[Any, ...]]:
        with self._problems_told(), self._connection.cursor() as cursor:
            cursor.execute(statement, tuple(values))
            return [tuple(row) for row in cursor.fetchall()]

    def change(self, statement: str, values: Row = ()) -> int:
        with self._problems_told(), self._connection.cursor() as cursor:
            return int(cursor.execute(statement, tuple(values)))

    def change_many(self, statement: str, rows: Sequence[Row]) -> None:
        with self._problems_told(), self._connection.cursor() as cursor:
            cursor.executemany(statement, rows)

    def quoted(self, name: str) -> str:
        """A percent sign would begin a parameter, which every statement may have."""
        return ".".join("`" + part.replace("`", "``").replace("%", "%%") + "`" for part in name.split("."))

    def insert_if_missing(self, table: str, count: int) -> str:
        return f"INSERT IGNORE INTO {table} VALUES ({self.marks(count)})"

    def upsert(self, table: str, key: Sequence[str], names: Sequence[str]) -> str:
        """By any unique index: a row that is the same in one of them is taken for the same row."""
        others = [self.quoted(name) for name in names if name not in key] or [self.quoted(key[0])]
        changed = ", ".join(f"{name} = VALUES({name})" for name in others)
        columns = ", ".join(map(self.quoted, names))
        return (
            f"INSERT INTO {self.quoted(table)} ({columns}) VALUES ({self.marks(len(names))}) "
            f"ON DUPLICATE KEY UPDATE {changed}"
        )

    def table(self, name: str) -> FoundTable | None:
        schema, _, table = name.rpartition(".")
        where = [schema or None, table]
        columns = self.rows(_COLUMNS, where)
        if not columns:
            return None
        keys: dict[str, list[str]] = {}
        for index, column in self.rows(_KEYS, where):
            keys.setdefault(index, []).append(column)
        primary_key = tuple(keys.pop("PRIMARY", ()))
        unique = [frozenset(primary_key)] if primary_key else []
        unique += [frozenset(found) for found in keys.values()]
        return FoundTable({str(name): _TYPES.get(str(kind)) for name, kind in columns}, unique, primary_key)

    def to_parameter(self, value: Any, type: ColumnType | None) -> Any:
        if type in ("timestamp", "timestamptz", "time") and isinstance(value, str):
            return _ZONE.sub("", value).replace("T", " ")
        return value

    def close(self) -> None:
        if self._connection.open:
            self._connection.close()
