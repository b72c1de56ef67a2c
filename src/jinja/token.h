/* jinja/token.h - what the lexer cuts a template's source into; for this folder only. */
#ifndef JINJA_TOKEN_H
#define JINJA_TOKEN_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum token_kind {
    T_EOF,
    T_DATA,
    T_VARIABLE_BEGIN,
    T_VARIABLE_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_ADD,
    T_SUB,
    T_MUL,
    T_DIV,
    T_FLOORDIV,
    T_MOD,
    T_POW,
    T_TILDE,
    T_EQ,
    T_NE,
    T_LT,
    T_LE,
    T_GT,
    T_GE,
    T_IN,     /* made by the parser, from names */
    T_NOT_IN, /* likewise */
    T_ASSIGN,
    T_DOT,
    T_COLON,
    T_SEMICOLON,
    T_PIPE,
    T_COMMA,
    T_LPAREN,
    T_RPAREN,
    T_LBRACKET,
    T_RBRACKET,
    T_LBRACE,
    T_RBRACE,
};

struct token {
    enum token_kind kind;
    uint32_t line;
    struct str text; /* the data, the name, the string without quotes and escapes */
    int64_t integer;
    double real;
};

struct tokens {
    struct token *items;
    size_t count, cap;
};

#endif
