r"""The grammar of SQL92 expressions, for the parser generator.

The lexer ignores the context and takes the longest token. NOT binds tighter than any comparison.
Text after a complete expression is an error; RocketMQ ignores it.

A line comment must end with a line break; without one its hyphens are minus signs. The lexer
searches for the line break only at the first of several hyphens, not again for each of them.
Source: docs/design/broker_behaviour.md sections 3.1, 3.2 and 3.5.
"""

from __future__ import annotations

# The terminal of each keyword. The parser drops terminals with an underscore from its tree.
_KEYWORDS = {
    **{word: f"_{word}" for word in ("NOT", "AND", "OR", "BETWEEN", "IN", "IS")},
    **{word: word for word in ("TRUE", "FALSE", "NULL")},
    **{word: word for word in ("CONTAINS", "STARTSWITH", "ENDSWITH")},
}
# Letters of other alphabets do not match, even if their upper case is an ASCII letter.
_TERMINALS = "\n".join(
    f"    {name}.4: /(?ai:{word})(?![A-Za-z0-9_$])/" for word, name in _KEYWORDS.items()
)
GRAMMAR = rf"""
    ?any_of: all_of | any_of _OR all_of
    ?all_of: equality | all_of _AND equality
    ?equality: comparison
        | equality "=" comparison -> equal
        | equality _UNEQUAL comparison -> not_equal
        | equality _IS NULL -> is_null
        | equality _IS _NOT NULL -> is_not_null
    ?comparison: unary
        | comparison ORDER unary -> ordered
        | comparison search STRING -> searched
        | comparison _NOT search STRING -> not_searched
        | comparison _BETWEEN unary _AND unary -> between
        | comparison _NOT _BETWEEN unary _AND unary -> not_between
        | comparison _IN "(" STRING ("," STRING)* ")" -> one_of
        | comparison _NOT _IN "(" STRING ("," STRING)* ")" -> not_one_of
    !search: CONTAINS | STARTSWITH | ENDSWITH
    ?unary: "+" unary
        | "-" unary -> negation
        | _NOT unary -> negated
        | STRING -> text
        | INTEGER -> integer
        | FLOAT -> double
        | TRUE -> true
        | FALSE -> false
        | NULL -> null
        | NAME -> property
        | "(" any_of ")" -> parentheses

{_TERMINALS}
    _UNEQUAL.5: "<>"
    ORDER.4: ">=" | "<=" | ">" | "<"
    FLOAT.3: /[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
    INTEGER.2: /0|[1-9][0-9]*[lL]?/
    NAME: /[A-Za-z_$][A-Za-z0-9_$]*/
    STRING: /'(''|[^'])*'/
    %ignore /[ \t\n\r\f]+/
    %ignore /(?<!-)--(?![^\n\r]*\Z)[^\n\r]*(\r\n|\n|\r)/
    %ignore /\/\*(.|\n)*?\*\//
"""
