/* The caching allocator against a simple model of the same rules: arrays and linear searches, no shared code.
 * Random sequences of operations; after each one, all addresses, statistics and blocks must be equal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake_device.h"
#include "runtime/allocator.h"

/* --- the model --- */

enum { MAX_BLOCKS = 4096, MAX_SEGMENTS = 512, POOLS = 3 };

typedef struct model_block {
    size_t offset, size, requested;
    bool allocated;
    unsigned recorded;                 /* a bit for each stream */
    unsigned long marks[FAKE_STREAMS]; /* since freed: 0 or what the stream must have finished */
} model_block;

typedef struct model_segment {
    char *base;
    size_t size;
    int stream, pool;
    bool large;
    int count;
    model_block blocks[256]; /* in the order of addresses; no gaps */
} model_segment;

typedef struct model {
    model_segment *segments[MAX_SEGMENTS];
    int count;
    struct model_pool {
        bool exists, on_oom, source;
        int users;
        unsigned streams; /* that its filter says yes to */
    } pools[POOLS];
    int made[POOLS], made_count;         /* the pools that exist, newest first */
    int captures[POOLS], captures_count; /* those that are begun, newest first */
    double fraction;
    xpu_memory_stats stats;
} model;

static model m;

static void up(xpu_memory_stat *s, size_t n) {
    s->current += (int64_t)n;
    s->allocated += (int64_t)n;
    s->peak = s->current > s->peak ? s->current : s->peak;
}
static void down(xpu_memory_stat *s, size_t n) {
    s->current -= (int64_t)n;
    s->freed += (int64_t)n;
}
#define BOTH(f, field, large, n) (f(&m.stats.field[0], (n)), f(&m.stats.field[(large) ? 2 : 1], (n)))

static bool pending(const model_block *b) {
    for (int s = 0; s < FAKE_STREAMS; s++)
        if (b->marks[s]) return true;
    return false;
}
static bool is_free(const model_block *b) { return !b->allocated && !pending(b); }

static void drop_segment(int i) {
    model_segment *s = m.segments[i];
    BOTH(down, segment, s->large, 1);
    BOTH(down, reserved_bytes, s->large, s->size);
    m.stats.num_device_free++;
    free(s);
    m.segments[i] = m.segments[--m.count];
}

static void remove_at(model_segment *s, int i) {
    memmove(&s->blocks[i], &s->blocks[i + 1], (size_t)(s->count - i - 1) * sizeof *s->blocks);
    s->count--;
}

/* Recomputes the inactive counts of a kind from the segments, as one change. */
static void count_inactive(bool large, bool aggregate) {
    int64_t splits = 0, bytes = 0;
    for (int i = 0; i < m.count; i++) {
        model_segment *s = m.segments[i];
        if ((!aggregate && s->large != large) || s->count == 1) continue;
        for (int k = 0; k < s->count; k++) {
            splits += is_free(&s->blocks[k]);
            bytes += is_free(&s->blocks[k]) ? (int64_t)s->blocks[k].size : 0;
        }
    }
    int kind = aggregate ? 0 : large ? 2 : 1;
    xpu_memory_stat *a = &m.stats.inactive_split[kind], *b = &m.stats.inactive_split_bytes[kind];
    if (splits > a->current) up(a, (size_t)(splits - a->current));
    if (splits < a->current) down(a, (size_t)(a->current - splits));
    if (bytes > b->current) up(b, (size_t)(bytes - b->current));
    if (bytes < b->current) down(b, (size_t)(b->current - bytes));
}

static void settle_inactive(bool large) {
    count_inactive(large, false);
    count_inactive(large, true);
}

static void block_freed(model_segment *s, int i) {
    model_block *b = &s->blocks[i];
    BOTH(down, active, s->large, 1);
    BOTH(down, active_bytes, s->large, b->size);
    BOTH(down, requested_bytes, s->large, b->requested);
    if (i + 1 < s->count && is_free(b + 1)) {
        b->size += b[1].size;
        remove_at(s, i + 1);
    }
    if (i > 0 && is_free(b - 1)) {
        b[-1].size += b->size;
        remove_at(s, i);
    }
    settle_inactive(s->large);
}

/* Frees what waited for streams that have passed, or (wait) for all. */
static void process(bool wait, int only_abandoned) {
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < m.count && !again; i++) {
            model_segment *s = m.segments[i];
            if (only_abandoned && (s->pool == 0 || m.pools[s->pool].users > 0)) continue;
            for (int k = 0; k < s->count && !again; k++) {
                model_block *b = &s->blocks[k];
                if (b->allocated || !pending(b)) continue;
                for (int q = 0; q < FAKE_STREAMS; q++)
                    if (wait || fakes[0].streams[q].finished >= b->marks[q]) b->marks[q] = 0;
                if (pending(b)) continue;
                block_freed(s, k);
                again = true;
            }
        }
    }
}

static void release_pool(int pool) {
    for (int i = m.count; i-- > 0;) {
        model_segment *s = m.segments[i];
        if (s->pool == pool && s->count == 1 && is_free(s->blocks)) drop_segment(i);
    }
}

static void put_first(int *list, int *count, int pool) {
    memmove(list + 1, list, (size_t)(*count)++ * sizeof *list);
    list[0] = pool;
}

static void take_out(int *list, int *count, int pool) {
    int i = 0;
    while (list[i] != pool) i++;
    memmove(list + i, list + i + 1, (size_t)(--*count - i) * sizeof *list);
}

static bool captured(int pool) {
    for (int i = 0; i < m.captures_count; i++)
        if (m.captures[i] == pool) return true;
    return false;
}

static int pool_of_stream(int stream) {
    for (int i = 0; i < m.captures_count; i++)
        if (m.pools[m.captures[i]].streams >> stream & 1) return m.captures[i];
    return 0;
}

static int segments_of(int pool) {
    int count = 0;
    for (int i = 0; i < m.count; i++) count += m.segments[i]->pool == pool;
    return count;
}

static void release_all(void) {
    if (!m.captures_count) {
        m.stats.num_sync_all_streams++;
        process(true, 0);
        release_pool(0);
    }
    for (int p = 1; p < POOLS; p++) {
        if (!m.pools[p].exists || m.pools[p].users > 0 || captured(p)) continue;
        release_pool(p);
        if (segments_of(p)) continue;
        m.pools[p] = (struct model_pool){.exists = false};
        take_out(m.made, &m.made_count, p);
    }
}

static size_t segment_bytes(size_t size) {
    return size <= 1048576 ? 2097152 : size < 10485760 ? 20971520 : (size + 2097151) / 2097152 * 2097152;
}

/* The expected result of xpu_malloc: segment (NULL for a new one) and offset; or failure. */
static model_block *model_malloc(int stream, size_t requested, model_segment **where, bool *fresh) {
    if (!m.captures_count) process(false, 0);
    size_t size = (requested + 511) / 512 * 512;
    bool large = size > 1048576;
    const int own = pool_of_stream(stream);
    for (int attempt = 0; attempt < 3 + (own == 0 ? m.made_count : 0); attempt++) {
        int pool = attempt < 3 ? own : m.made[attempt - 3];
        if (attempt >= 3 && !m.pools[pool].on_oom) continue;
        if (attempt != 1) { /* look among the free: at first, and when all else has failed */
            model_segment *best = NULL;
            int at = 0;
            for (int i = 0; i < m.count; i++) {
                model_segment *s = m.segments[i];
                if (s->stream != stream || s->pool != pool || s->large != large) continue;
                for (int k = 0; k < s->count; k++) {
                    model_block *b = &s->blocks[k];
                    if (!is_free(b) || b->size < size) continue;
                    if (!best || b->size < best->blocks[at].size ||
                        (b->size == best->blocks[at].size &&
                         s->base + b->offset < best->base + best->blocks[at].offset))
                        best = s, at = k;
                }
            }
            if (best) {
                *where = best;
                *fresh = false;
                size_t rest = best->blocks[at].size - size;
                if (large ? rest > 1048576 : rest >= 512) {
                    if (best->count == 256) abort();
                    memmove(&best->blocks[at + 1], &best->blocks[at],
                            (size_t)(best->count - at) * sizeof *best->blocks);
                    best->count++;
                    best->blocks[at].size = size;
                    best->blocks[at + 1].offset += size;
                    best->blocks[at + 1].size = rest;
                }
                return &best->blocks[at];
            }
            if (attempt >= 2) continue;
        }
        /* from the driver */
        size_t bytes = segment_bytes(size);
        if (attempt == 1) m.stats.num_alloc_retries++;
        size_t reserved = (size_t)m.stats.reserved_bytes[0].current;
        if (reserved + bytes <= fakes[0].limit &&
            !(m.fraction > 0 &&
              (double)(reserved + bytes) > m.fraction * (double)fakes[0].properties.total_memory)) {
            model_segment *s = calloc(1, sizeof *s);
            s->size = bytes;
            s->stream = stream;
            s->pool = pool;
            s->large = large;
            s->count = 1;
            s->blocks[0].size = bytes;
            m.segments[m.count++] = s;
            if (m.count == MAX_SEGMENTS) abort();
            BOTH(up, segment, large, 1);
            BOTH(up, reserved_bytes, large, bytes);
            m.stats.num_device_alloc++;
            *where = s;
            *fresh = true;
            size_t rest = bytes - size;
            if (large ? rest > 1048576 : rest >= 512) {
                s->blocks[1] = (model_block){.offset = size, .size = rest};
                s->blocks[0].size = size;
                s->count = 2;
            }
            return &s->blocks[0];
        }
        if (attempt == 0) release_all();
    }
    m.stats.num_ooms++;
    return NULL;
}

static void model_handed_out(model_segment *s, model_block *b, size_t requested) {
    b->allocated = true;
    b->requested = requested;
    b->recorded = 0;
    settle_inactive(s->large);
    BOTH(up, allocation, s->large, 1);
    BOTH(up, active, s->large, 1);
    BOTH(up, allocated_bytes, s->large, b->size);
    BOTH(up, active_bytes, s->large, b->size);
    BOTH(up, requested_bytes, s->large, requested);
}

static model_block *model_find(void *p, model_segment **where) {
    for (int i = 0; i < m.count; i++) {
        model_segment *s = m.segments[i];
        for (int k = 0; k < s->count; k++)
            if (s->base + s->blocks[k].offset == (char *)p) return *where = s, &s->blocks[k];
    }
    return NULL;
}

static void model_free(void *p) {
    model_segment *s = NULL;
    model_block *b = model_find(p, &s);
    BOTH(down, allocation, s->large, 1);
    BOTH(down, allocated_bytes, s->large, b->size);
    b->allocated = false;
    for (int q = 0; q < FAKE_STREAMS; q++)
        if (b->recorded >> q & 1) b->marks[q] = fakes[0].streams[q].submitted;
    if (!pending(b)) block_freed(s, (int)(b - s->blocks));
}

/* --- the comparison --- */

static void same_stat(const char *name, int kind, const xpu_memory_stat *got, const xpu_memory_stat *want,
                      bool order_known) {
    bool same = got->current == want->current;
    if (order_known)
        same =
            same && got->peak == want->peak && got->allocated == want->allocated && got->freed == want->freed;
    if (same) return;
    fail_msg("%s[%d]: %ld peak %ld allocated %ld freed %ld, the model: %ld peak %ld allocated %ld freed %ld",
             name, kind, got->current, got->peak, got->allocated, got->freed, want->current, want->peak,
             want->allocated, want->freed);
}

/* In which order blocks come free that waited for different streams is nobody's promise, and the sums of
 * the inactive splits depend on it. */
static void compare_stats(bool recorded) {
    xpu_memory_stats got;
    assert_int_equal(xpu_memory_get_stats(0, &got), XPU_SUCCESS);
#define SAME(field, order_known)                                                                             \
    for (int kind = 0; kind < XPU_POOL_KINDS; kind++)                                                        \
    same_stat(#field, kind, &got.field[kind], &m.stats.field[kind], order_known)
    SAME(allocation, true);
    SAME(segment, true);
    SAME(active, true);
    SAME(allocated_bytes, true);
    SAME(reserved_bytes, true);
    SAME(active_bytes, true);
    SAME(requested_bytes, true);
    SAME(inactive_split, !recorded);
    SAME(inactive_split_bytes, !recorded);
    assert_int_equal(got.num_alloc_retries, m.stats.num_alloc_retries);
    assert_int_equal(got.num_ooms, m.stats.num_ooms);
    assert_int_equal(got.num_device_alloc, m.stats.num_device_alloc);
    assert_int_equal(got.num_device_free, m.stats.num_device_free);
    assert_int_equal(got.num_sync_all_streams, m.stats.num_sync_all_streams);
    assert_int_equal(got.reserved_bytes[0].current, fakes[0].used);
}

typedef struct walk {
    int blocks;
    char *end; /* where the last block ended: the next begins there, or a segment does */
} walk;

static void compare_block(const xpu_block_info *b, void *user) {
    walk *w = user;
    model_segment *s = NULL;
    model_block *want = model_find(b->address, &s);
    if (b->address != b->segment) assert_ptr_equal(b->address, w->end);
    assert_true((char *)b->address >= w->end); /* in order, and nothing overlaps */
    w->end = (char *)b->address + b->size;
    w->blocks++;
    assert_non_null(want);
    assert_ptr_equal(b->segment, s->base);
    assert_int_equal(b->segment_size, s->size);
    assert_int_equal(b->size, want->size);
    assert_int_equal(b->is_large, s->large);
    assert_int_equal(b->stream_id, s->stream);
    assert_int_equal(b->pool[0], s->pool);
    assert_int_equal(b->state, want->allocated ? XPU_BLOCK_ALLOCATED
                               : pending(want) ? XPU_BLOCK_PENDING_FREE
                                               : XPU_BLOCK_INACTIVE);
    if (want->allocated) assert_int_equal(b->requested_size, want->requested);
}

static void compare_blocks(void) {
    walk w = {0};
    int count = 0;
    for (int i = 0; i < m.count; i++) count += m.segments[i]->count;
    assert_int_equal(xpu_memory_visit_blocks(0, compare_block, &w), XPU_SUCCESS);
    assert_int_equal(w.blocks, count);
}

/* --- random sequences --- */

static size_t random_size(uint64_t *r) {
    switch (random_below(r, 8)) {
    case 0: return 1 + random_below(r, 2000);
    case 1: return 512 * (1 + random_below(r, 8));
    case 2: return 1 + random_below(r, 64 << 10);
    case 3: return (900 << 10) + random_below(r, 200 << 10);
    case 4: return MIB + random_below(r, 3 * MIB);
    case 5: return 9 * MIB + random_below(r, 2 * MIB);
    case 6: return MIB * (1 + random_below(r, 20));
    default: return 32 << 10;
    }
}

static bool on_streams(xpu_stream *stream, void *user) {
    return m.pools[(intptr_t)user].streams >> stream->id & 1;
}

static int given_out; /* segments that the source below gave and hasn't got back */

static void *take_segment(size_t size, int device, void *queue) {
    void *pointer;
    assert_ptr_equal(queue, &fakes[device].streams[((xpu_stream *)queue)->id]);
    if (cl_memory_alloc(device, size, &pointer) != XPU_SUCCESS) return NULL;
    given_out++;
    return pointer;
}

static void give_segment(void *pointer, size_t size, int device, void *queue) {
    assert_ptr_equal(queue, &fakes[device].streams[((xpu_stream *)queue)->id]);
    given_out--;
    cl_memory_free(device, pointer);
}

static void compare_sources(void) {
    int count = 0;
    for (int p = 1; p < POOLS; p++)
        if (m.pools[p].source) count += segments_of(p);
    assert_int_equal(given_out, count);
}

/* Begins or ends a pool; gives new ones a source or a part in the last resort, now and then. */
static void work_on_pool(uint64_t *r, int pool) {
    const uint64_t id[2] = {(uint64_t)pool, 0};
    struct model_pool *p = &m.pools[pool];
    if (captured(pool)) {
        assert_int_equal(xpu_pool_end(0, id), XPU_SUCCESS);
        take_out(m.captures, &m.captures_count, pool);
        if (random_below(r, 2)) {
            assert_int_equal(xpu_pool_release(0, id), XPU_SUCCESS);
            p->users--;
        }
        return;
    }
    assert_int_equal(xpu_pool_begin(0, id, on_streams, (void *)(intptr_t)pool), XPU_SUCCESS);
    if (!p->exists) {
        p->exists = true;
        put_first(m.made, &m.made_count, pool);
    }
    put_first(m.captures, &m.captures_count, pool);
    p->users++;
    p->streams = 1 + (unsigned)random_below(r, (1u << FAKE_STREAMS) - 1);
    if (random_below(r, 2)) {
        const xpu_pool_source source = {.take = take_segment, .give = give_segment};
        bool fresh = segments_of(pool) == 0;
        assert_int_equal(xpu_pool_set_source(0, id, source),
                         fresh ? XPU_SUCCESS : XPU_ERROR_INVALID_ARGUMENT);
        p->source |= fresh;
    }
    if (random_below(r, 2)) {
        assert_int_equal(xpu_pool_use_on_oom(0, id), XPU_SUCCESS);
        p->on_oom = true;
    }
}

enum { LIVE = 150 };

static void run(uint64_t seed, int steps, bool record, bool pools) {
    uint64_t r = seed;
    void *live[LIVE];
    int count = 0;
    fake_reset();
    fake_no_reuse = seed % 3 == 0;
    fakes[0].limit = (40 + random_below(&r, 400)) * MIB;
    xpu_memory_reset_peak_stats(0);
    xpu_memory_reset_accumulated_stats(0);
    double fraction = m.fraction;
    memset(&m, 0, sizeof m);
    m.fraction = fraction;
    xpu_memory_get_stats(0, &m.stats); /* sums that no reset touches */
    int streams = 1 + (int)random_below(&r, FAKE_STREAMS);

    for (int step = 0; step < steps; step++) {
        int what = (int)random_below(&r, 100), stream = (int)random_below(&r, (uint64_t)streams);
        if (what < 45 && count < LIVE) {
            size_t size = random_size(&r);
            model_segment *s = NULL;
            bool fresh = false;
            void *got;
            model_block *b = model_malloc(stream, size, &s, &fresh);
            xpu_status status = xpu_malloc(&fakes[0].streams[stream], size, &got);
            assert_int_equal(status, b ? XPU_SUCCESS : XPU_ERROR_OUT_OF_MEMORY);
            if (b) {
                if (fresh) s->base = fakes[0].last;
                assert_ptr_equal(got, s->base + b->offset);
                model_handed_out(s, b, size);
                live[count++] = got;
            }
        } else if (what < 85 && count > 0) {
            int i = (int)random_below(&r, (uint64_t)count);
            assert_int_equal(xpu_free(live[i]), XPU_SUCCESS);
            model_free(live[i]);
            live[i] = live[--count];
        } else if (what < 92 && record && count > 0) {
            int i = (int)random_below(&r, (uint64_t)count), other = (int)random_below(&r, FAKE_STREAMS);
            model_segment *s = NULL;
            model_block *b = model_find(live[i], &s);
            fake_submit(&fakes[0].streams[other]);
            assert_int_equal(xpu_memory_record_stream(live[i], &fakes[0].streams[other]), XPU_SUCCESS);
            if (other != s->stream) b->recorded |= 1u << other;
        } else if (what < 96) {
            xpu_stream *s = &fakes[0].streams[random_below(&r, FAKE_STREAMS)];
            s->finished += random_below(&r, s->submitted - s->finished + 1);
        } else if (what < 97) {
            assert_int_equal(xpu_memory_empty_cache(0), XPU_SUCCESS);
            release_all();
            for (int s = 0; s < FAKE_STREAMS; s++) fake_finish(&fakes[0].streams[s]);
        } else if (what < 98) {
            void *base;
            size_t size;
            if (count == 0) continue;
            model_segment *s = NULL;
            model_block *b = model_find(live[0], &s);
            assert_int_equal(xpu_memory_base_of((char *)live[0] + random_below(&r, b->size), &base, &size),
                             XPU_SUCCESS);
            assert_ptr_equal(base, live[0]);
            assert_int_equal(size, b->size);
        } else if (pools) {
            work_on_pool(&r, 1 + (int)random_below(&r, POOLS - 1));
        }
        compare_sources();
        compare_stats(record);
        if (step % 16 == 0) compare_blocks();
    }

    /* All back: nothing stays. */
    for (int pool = 1; pool < POOLS; pool++) {
        const uint64_t id[2] = {(uint64_t)pool, 0};
        if (captured(pool)) assert_int_equal(xpu_pool_end(0, id), XPU_SUCCESS);
        for (; m.pools[pool].users > 0; m.pools[pool].users--)
            assert_int_equal(xpu_pool_release(0, id), XPU_SUCCESS);
    }
    while (count > 0) assert_int_equal(xpu_free(live[--count]), XPU_SUCCESS);
    assert_int_equal(xpu_memory_empty_cache(0), XPU_SUCCESS);
    assert_int_equal(fakes[0].used, 0);
    assert_int_equal(given_out, 0);
    xpu_memory_stats s;
    xpu_memory_get_stats(0, &s);
    for (int kind = 0; kind < XPU_POOL_KINDS; kind++) {
        assert_int_equal(s.active_bytes[kind].current, 0);
        assert_int_equal(s.inactive_split_bytes[kind].current, 0);
        assert_int_equal(s.reserved_bytes[kind].current, 0);
    }
    while (m.count > 0) free(m.segments[--m.count]);
}

static int rounds(void) {
    const char *text = getenv("OPENXPU_TEST_ROUNDS");
    return text ? atoi(text) : 40;
}

static void plain(void **state) {
    for (int i = 0; i < rounds(); i++) run(1000 + (uint64_t)i, 600, false, false);
}
static void with_other_streams(void **state) {
    for (int i = 0; i < rounds(); i++) run(2000 + (uint64_t)i, 600, true, false);
}
static void with_private_pools(void **state) {
    for (int i = 0; i < rounds(); i++) run(3000 + (uint64_t)i, 600, true, true);
}
static void with_a_fraction(void **state) {
    m.fraction = 0.1;
    assert_int_equal(xpu_memory_set_fraction(0, 0.1), XPU_SUCCESS);
    for (int i = 0; i < rounds(); i++) run(4000 + (uint64_t)i, 600, true, true);
}

int main(void) {
    fake_reset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain),
        cmocka_unit_test(with_other_streams),
        cmocka_unit_test(with_private_pools),
        cmocka_unit_test(with_a_fraction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
