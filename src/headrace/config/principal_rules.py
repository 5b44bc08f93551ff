r"""Who a client with a certificate is: `ssl.principal.mapping.rules`, from a distinguished name to a user's name.

    RULE:^CN=(.*?),.*$/$1/L,DEFAULT

The first rule whose pattern is the whole name counts. `$1` is a group of it, `L` and `U` make the outcome lower or
upper case, DEFAULT is the name as it is. A name that no rule fits is refused.

A distinguished name is written as Java does it, and so Kafka (RFC 2253): the most specific part first, as
`CN=alice,OU=billing,O=Acme,C=DE`. Patterns are the operator's, and names have been signed by who is trusted: so
Python's own expressions, the nearest to Java's, do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.config.setting import ConfigError

MAX_NAME = 4096
"""Characters of a distinguished name that patterns are tried on."""
_RULE = re.compile(r"\s*(?:DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_GROUP = re.compile(r"\\(.)|\$(\d)")
_KEYWORDS = {
    "commonName": "CN",
    "countryName": "C",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_PRINTABLE, _IA5, _UTF8 = 0x13, 0x16, 0x0C
_OTHERS = {
    "emailAddress": ("1.2.840.113549.1.9.1", _IA5),
    "serialNumber": ("2.5.4.5", _PRINTABLE),
    "dnQualifier": ("2.5.4.46", _PRINTABLE),
    "surname": ("2.5.4.4", _UTF8),
    "title": ("2.5.4.12", _UTF8),
    "givenName": ("2.5.4.42", _UTF8),
    "initials": ("2.5.4.43", _UTF8),
    "pseudonym": ("2.5.4.65", _UTF8),
    "businessCategory": ("2.5.4.15", _UTF8),
    "organizationIdentifier": ("2.5.4.97", _UTF8),
}

_SPECIAL = re.compile(r'[,=+<>#;"\\]|\A +| +\Z')
"""What Java puts a backslash before, even if RFC 2253 does not ask for it; spaces only at both ends."""

Subject = Sequence[Sequence[tuple[str, str]]]
"""As the standard library gives it: parts, each of pairs of a type's long name and a value."""


@dataclass(frozen=True, slots=True)
class PrincipalRule:
    pattern: str | None
    """None for DEFAULT."""
    replacement: str = ""
    letter_case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        match = _compiled(self.pattern).fullmatch(name)
        if match is None:
            return None

        def group(found: re.Match[str]) -> str:
            if found[1] is not None:
                return found[1]
            number = int(found[2])
            return (match[number] or "") if number <= len(match.groups()) else found[0]

        mapped = _GROUP.sub(group, self.replacement)
        return {"L": mapped.lower, "U": mapped.upper}.get(self.letter_case, lambda: mapped)()


@dataclass(frozen=True, slots=True)
class PrincipalRules:
    rules: tuple[PrincipalRule, ...]

    @classmethod
    def parse(cls, text: str) -> PrincipalRules:
        rules: list[PrincipalRule] = []
        position = 0
        text = text.strip()
        while position < len(text):
            found = _RULE.match(text, position)
            if found is None:
                raise ConfigError(
                    f"ssl.principal.mapping.rules: {text[position:]!r} is neither DEFAULT nor of the form "
                    "RULE:pattern/replacement/ with L or U after it"
                )
            rules.append(PrincipalRule(found[1], found[2] or "", found[3] or ""))
            if found[1] is not None:
                _compiled(found[1])
            position = found.end()
        return cls(tuple(rules) or (PrincipalRule(None),))

    def user(self, name: str) -> str | None:
        """The user of a distinguished name; None if no rule fits."""
        for rule in self.rules:
            if len(name) <= MAX_NAME and (mapped := rule.apply(name)) is not None:
                return mapped
        return None


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"ssl.principal.mapping.rules: {pattern!r} is not a valid pattern: {error}") from None


def distinguished_name(subject: Subject) -> str:
    """As RFC 2253 writes it, which is what Kafka calls a client with that certificate."""
    return ",".join("+".join(_pair(name, value) for name, value in part) for part in reversed(subject))


def _pair(name: str, value: str) -> str:
    if name in _KEYWORDS:
        return f"{_KEYWORDS[name]}={_escaped(value)}"
    number, tag = _OTHERS.get(name, (name, _UTF8))
    raw = value.encode()
    return f"{number}=#{(bytes((tag,)) + _der_length(len(raw)) + raw).hex()}"


def _der_length(size: int) -> bytes:
    if size < 0x80:
        return bytes((size,))
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((0x80 | len(digits),)) + digits


def _escaped(value: str) -> str:
    return _SPECIAL.sub(lambda found: "".join(f"\\{character}" for character in found[0]), value)
