/* Dead function removal by reachability over words (prune.h): everything outside functions is kept; a
 * function is kept if a kept part names it, repeated until nothing changes. */
#include "core/prune.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

#include "core/memory.h"

typedef struct span {
    const char *begin, *end;
} span;

/* A function, or the text between two. */
typedef struct piece {
    span text, name; /* without a name it is always kept */
    bool kept;
} piece;

/* Words of the kept text: a hash set with open addressing, at most half full. */
typedef struct word_set {
    span *slot;
    size_t mask;
} word_set;

static inline bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }
static inline size_t length_of(span s) { return (size_t)(s.end - s.begin); }

static bool begins_with(span s, const char *start) {
    size_t n = strlen(start);
    return length_of(s) >= n && !memcmp(s.begin, start, n);
}

static span *find_word(const word_set *set, span word) {
    uint32_t h = 2166136261u;
    for (const char *c = word.begin; c < word.end; c++) h = (h ^ (unsigned char)*c) * 16777619u;
    for (size_t i = h & set->mask;; i = (i + 1) & set->mask) {
        span *s = &set->slot[i];
        if (!s->begin || (length_of(*s) == length_of(word) && !memcmp(s->begin, word.begin, length_of(word))))
            return s;
    }
}

static bool has_word(const word_set *set, span word) { return find_word(set, word)->begin != NULL; }

/* Adds the words of a text outside comments. The set was sized for all words, so it never fills up. */
static void add_words(word_set *set, span s) {
    for (const char *c = s.begin; c < s.end;) {
        if (c[0] == '/' && c + 1 < s.end && c[1] == '*') {
            for (c += 2; c < s.end && !(c[-1] == '*' && c[0] == '/'); c++) {}
            c += c < s.end;
        } else if (c[0] == '/' && c + 1 < s.end && c[1] == '/') {
            while (c < s.end && *c != '\n') c++;
        } else if (is_word(*c)) {
            span word = {c, c};
            while (word.end < s.end && is_word(*word.end)) word.end++;
            span *slot = find_word(set, word);
            if (!slot->begin) *slot = word;
            c = word.end;
        } else {
            c++;
        }
    }
}

/* The end of the line that starts at `c`, behind its newline. */
static const char *line_end(const char *c, const char *end) {
    const char *newline = memchr(c, '\n', (size_t)(end - c));
    return newline ? newline + 1 : end;
}

/* Reads the function that starts at `c`; false if there is none, or its end is not recognizable. */
static bool read_function(const char *c, const char *end, piece *p) {
    const char *line = line_end(c, end), *last = line;
    *p = (piece){.text = {c, line}};
    if (begins_with(p->text, "XPU_PLAIN(")) {
        p->name.begin = p->name.end = c + sizeof "XPU_PLAIN(" - 1;
        while (p->name.end < line && is_word(*p->name.end)) p->name.end++;
        return true;
    }
    if (!begins_with(p->text, "static inline ")) return false;
    const char *open = memchr(c, '(', (size_t)(line - c));
    if (!open) return false;
    p->name.begin = p->name.end = open;
    while (p->name.begin > c && is_word(p->name.begin[-1])) p->name.begin--;
    while (last > c && isspace((unsigned char)last[-1])) last--;
    if (last[-1] == '}') return true;
    for (c = line; c < end; c = line) { /* its last line */
        line = line_end(c, end);
        p->text.end = line;
        if (*c == '}') return true;
        if (*c != ' ' && *c != '\t' && *c != '\n' && *c != '#') return false;
    }
    return false;
}

/* Is the name a prefix ending in an underscore plus a rest, both of them words of the kept text? */
static bool is_pasted(const word_set *set, span name) {
    for (const char *c = name.begin; c + 1 < name.end; c++)
        if (*c == '_' && has_word(set, (span){name.begin, c + 1}) && has_word(set, (span){c + 1, name.end}))
            return true;
    return false;
}

/* Does a word of the kept text end in "_" followed by `name`? */
static bool is_suffix(const word_set *set, span name) {
    for (size_t i = 0; i <= set->mask; i++) {
        span word = set->slot[i];
        if (!word.begin || length_of(word) <= length_of(name)) continue;
        const char *tail = word.end - length_of(name);
        if (tail[-1] == '_' && !memcmp(tail, name.begin, length_of(name))) return true;
    }
    return false;
}

static bool is_wanted(const word_set *set, const piece *p) {
    if (has_word(set, p->name)) return true;
    return begins_with(p->text, "XPU_PLAIN(") ? is_suffix(set, p->name) : is_pasted(set, p->name);
}

/* Splits the source; returns the number of pieces, and writes them to `pieces` unless it is NULL. */
static size_t split(span source, piece *pieces) {
    size_t count = 0;
    const char *rest = source.begin; /* since the last function */
    for (const char *c = source.begin; c < source.end;) {
        piece p;
        if (!read_function(c, source.end, &p)) {
            c = line_end(c, source.end);
            continue;
        }
        if (pieces) {
            pieces[count] = (piece){.text = {rest, c}, .kept = true};
            pieces[count + 1] = p;
        }
        count += 2;
        c = rest = p.text.end;
    }
    if (pieces) pieces[count] = (piece){.text = {rest, source.end}, .kept = true};
    return count + 1;
}

static size_t count_words(span s) {
    size_t count = 0;
    for (const char *c = s.begin; c < s.end; c++) count += is_word(*c) && (c == s.begin || !is_word(c[-1]));
    return count;
}

void prune_source(text_buffer *out, const char *source, const char *options) {
    span all = {source, source + strlen(source)}, defines = {options, options};
    if (options) defines.end += strlen(options);
    size_t count = split(all, NULL), words = count_words(all) + count_words(defines), room = 64;
    while (room < 2 * words) room *= 2;
    piece *pieces = core_malloc(count * sizeof *pieces);
    word_set set = {core_calloc(room, sizeof *set.slot), room - 1};
    if (pieces && set.slot) {
        split(all, pieces);
        for (const char *c = defines.begin; c < defines.end; c++) /* the words of -DT=f32 are T and f32 */
            if (c[0] == '-' && c[1] == 'D' && (c == defines.begin || c[-1] == ' ')) {
                span option = {c + 2, c + 2};
                while (option.end < defines.end && *option.end != ' ') option.end++;
                add_words(&set, option);
            }
        for (size_t i = 0; i < count; i++)
            if (pieces[i].kept) add_words(&set, pieces[i].text);
        for (bool more = true; more;) {
            more = false;
            for (size_t i = 0; i < count; i++) {
                if (pieces[i].kept || !is_wanted(&set, &pieces[i])) continue;
                pieces[i].kept = more = true;
                add_words(&set, pieces[i].text);
            }
        }
        for (size_t i = 0; i < count; i++)
            if (pieces[i].kept) text_append(out, pieces[i].text.begin, length_of(pieces[i].text));
    } else {
        out->failed = true;
    }
    core_free(pieces);
    core_free(set.slot);
}
