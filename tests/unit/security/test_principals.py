"""`ssl.principal.mapping.rules`: what Kafka's SslPrincipalMapper made of them."""

from __future__ import annotations

import pytest

from tidelog.security.principals import InvalidRule, NoMatchingRule, PrincipalMapper

DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"
TWO_RULES = r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U,RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT"


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", DUKE, DUKE),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", DUKE, "Duke"),
        (TWO_RULES, DUKE, "DUKE@SERVICEUSERS"),
        (TWO_RULES, "cn=kafka1.Example.com,o=x", "kafka1.example.com"),
        (TWO_RULES, "O=nothing", "O=nothing"),
        (r"RULE:CN=Duke/$0/", "CN=Duke", "CN=Duke"),
        (r"RULE:^CN=(.*?),.*$/user-$1-$1/", DUKE, "user-Duke-Duke"),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$2\/$1/", DUKE, "ServiceUsers/Duke"),
        (r"RULE:^CN=([^,]+),.*$/$2/", DUKE, "$2"),
        (r"RULE:^CN=([^,]+),.*$/$10/", DUKE, "Duke0"),
        (r"RULE:^CN=(.*), *OU=(.*)$/$1/L , DEFAULT", "CN=A,OU=B", "a"),
        (r"RULE:^CN=(.*?),.*$/$1/,", DUKE, "Duke"),
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT", r"CN=Smith\, J,OU=x", r"Smith\, J"),
    ],
)
def test_rules_name_principals(rules: str, name: str, principal: str) -> None:
    """The first rule that matches the whole name decides."""
    assert PrincipalMapper(rules).name(name) == principal


def test_a_name_that_no_rule_matches_is_no_principal() -> None:
    """The error shows the rules as Kafka does."""
    with pytest.raises(NoMatchingRule, match=r"rules \[RULE:CN=Duke/\$0\]"):
        PrincipalMapper("RULE:CN=Duke/$0/").name(DUKE)


@pytest.mark.parametrize(
    "rules",
    ["RULE:", "nonsense", "rule:^CN=(.*)$/$1/", "RULE:^CN=(.*$/$1/", "RULE:^CN=(.*?)/$1/X", "RULE:^CN=(.*?)/$1"],
)
def test_broken_rules_are_refused(rules: str) -> None:
    """At the start, not when the first client comes."""
    with pytest.raises(InvalidRule, match="Invalid rule"):
        PrincipalMapper(rules)
