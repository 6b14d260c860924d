/* The lexer. A token points into the text; nothing is copied.
 *
 *   name    := [A-Za-z_] [A-Za-z0-9_.$]*
 *   value   := % [A-Za-z0-9_.$-]+          symbol := @ (name-characters | string)
 *   block   := ^ [A-Za-z0-9_.$-]+          type   := ! name        hash := # name-characters
 *   int     := [0-9]+ | 0x [0-9A-Fa-f]+    float  := [0-9]+ . [0-9]* ([eE] [+-]? [0-9]+)?
 *   string  := " (character | \ character)* "
 *   comment := // to the end of the line */
#include <string.h>

#include "tile/tile.h"

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
static bool is_name(char c) { return is_letter(c) || is_digit(c) || c == '.' || c == '$'; }

static const char *skip_space(const char *p, const char *end) {
    for (; p < end; p++) {
        if (*p == '/' && p + 1 < end && p[1] == '/')
            while (p < end && *p != '\n') p++;
        else if (*p != ' ' && *p != '\n' && *p != '\t' && *p != '\r')
            break;
        if (p == end) break;
    }
    return p;
}

static token piece(token_kind kind, const char *start, const char *stop) {
    return (token){kind, start, (size_t)(stop - start)};
}

static token lex_string(tile *t, token_kind kind, const char *start, const char *quote) {
    const char *p = quote + 1;
    while (p < t->end && *p != '"' && *p != '\n') p += *p == '\\' && p + 1 < t->end ? 2 : 1;
    if (p >= t->end || *p != '"') tile_error(t, start, "unterminated string");
    return piece(kind, start, p + 1);
}

static token lex_number(tile *t, const char *start) {
    const char *p = start, *end = t->end;
    if (*p == '0' && p + 2 < end && p[1] == 'x' && is_hex(p[2])) {
        for (p += 2; p < end && is_hex(*p);) p++;
        return piece(TOKEN_INT, start, p);
    }
    while (p < end && is_digit(*p)) p++;
    if (p >= end || *p != '.') return piece(TOKEN_INT, start, p);
    for (p++; p < end && is_digit(*p);) p++;
    if (p < end && (*p == 'e' || *p == 'E')) {
        const char *q = p + 1;
        if (q < end && (*q == '+' || *q == '-')) q++;
        if (q < end && is_digit(*q)) /* an exponent, not a name that follows? */
            for (p = q; p < end && is_digit(*p);) p++;
    }
    return piece(TOKEN_FLOAT, start, p);
}

token lex(tile *t, const char *from) {
    const char *end = t->end, *start = skip_space(from, end), *p = start + 1;
    if (start >= end) return piece(TOKEN_END, end, end);
    if (is_letter(*start)) {
        while (p < end && is_name(*p)) p++;
        return piece(TOKEN_NAME, start, p);
    }
    if (is_digit(*start)) return lex_number(t, start);
    switch (*start) {
    case '"': return lex_string(t, TOKEN_STRING, start, start);
    case '%':
    case '^':
        while (p < end && (is_name(*p) || *p == '-')) p++;
        if (p == start + 1) tile_error(t, start, "expected a name after '%c'", *start);
        return piece(*start == '%' ? TOKEN_VALUE : TOKEN_BLOCK, start, p);
    case '@':
        if (p < end && *p == '"') return lex_string(t, TOKEN_SYMBOL, start, p);
        while (p < end && (is_name(*p) || *p == '-')) p++;
        if (p == start + 1) tile_error(t, start, "expected a name after '@'");
        return piece(TOKEN_SYMBOL, start, p);
    case '!':
        while (p < end && is_name(*p)) p++;
        return piece(TOKEN_TYPE, start, p);
    case '#':
        while (p < end && is_name(*p)) p++;
        return piece(TOKEN_HASH, start, p);
    case '-':
        if (p < end && *p == '>') return piece(TOKEN_ARROW, start, p + 1);
        return piece(TOKEN_PUNCTUATION, start, p);
    default:
        if (!strchr("(){}[]<>=,:*+?/|&;", *start) || !*start)
            tile_error(t, start, "unexpected character (code %d)", (unsigned char)*start);
        return piece(TOKEN_PUNCTUATION, start, p);
    }
}
