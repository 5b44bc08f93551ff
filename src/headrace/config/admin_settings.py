"""The broker settings of the admin port: where it is, and who may look."""

from __future__ import annotations

from headrace.config.setting import ConfigType, Importance, Setting

ADMIN: tuple[Setting, ...] = (
    Setting(
        "headrace.admin.host",
        ConfigType.STRING,
        "127.0.0.1",
        Importance.MEDIUM,
        "Address of /metrics, /healthz and /readyz. If others can reach it, headrace.admin.auth is needed.",
    ),
    Setting(
        "headrace.admin.port",
        ConfigType.INT,
        "-1",
        Importance.MEDIUM,
        "The port of /metrics, /healthz and /readyz: 0 for any free one, -1 for the first listener's plus 552, "
        "which is 9644 for 9092.",
        -1,
        65535,
    ),
    Setting(
        "headrace.admin.auth",
        ConfigType.LIST,
        "",
        Importance.MEDIUM,
        "Who may see the admin port, except /healthz and /readyz: users (HTTP basic, with the password of a SCRAM "
        "or PLAIN user), token (a bearer token of headrace.admin.token.file), or both; everybody if empty.",
        allowed=("users", "token"),
    ),
    Setting(
        "headrace.admin.token.file",
        ConfigType.STRING,
        None,
        Importance.MEDIUM,
        "The file with the tokens of the admin port, one per line; it is read at every request.",
    ),
)
