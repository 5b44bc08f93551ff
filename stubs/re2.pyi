"""The calls of google-re2 that headrace.groups.regex makes."""

class Options:
    max_mem: int
    log_errors: bool

class Pattern:
    def fullmatch(self, text: str) -> object | None: ...

class error(Exception): ...  # noqa: N801 (the library's own name)

def compile(pattern: str, options: Options | None = None) -> Pattern: ...
