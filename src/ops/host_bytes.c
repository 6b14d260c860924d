/* Splits byte operations among the host's thread pool (host_bytes.h). */
#include "ops/host_bytes.h"

#include "xpu/device.h"

typedef struct shares {
    void (*move)(const void *of, int64_t begin, int64_t count);
    const void *of;
    int64_t bytes;
    int parts;
} shares;

static void move_share(int part, void *context) {
    const shares *s = context;
    const int64_t lines = s->bytes / 64, begin = lines * part / s->parts * 64;
    const int64_t end = part + 1 == s->parts ? s->bytes : lines * (part + 1) / s->parts * 64;
    if (begin < end) s->move(s->of, begin, end - begin);
}

void host_move_shared(int64_t bytes, void (*move)(const void *of, int64_t begin, int64_t count),
                      const void *of) {
    const xpu_host_thread_pool *team = bytes >= MIN_SHARED_BYTES ? xpu_get_host_thread_pool() : NULL;
    shares s = {move, of, bytes, team ? team->threads() : 1};
    if (s.parts > 1)
        team->run(s.parts, move_share, &s);
    else
        move(of, 0, bytes);
}
