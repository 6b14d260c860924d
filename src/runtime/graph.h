/* How the rest of the runtime sees captures: a stream that is part of one has it in `capture`. */
#ifndef RUNTIME_GRAPH_H
#define RUNTIME_GRAPH_H

#include "runtime/work.h"
#include "xpu/graph.h"

static inline xpu_graph *stream_capture(const xpu_stream *stream) {
    return atomic_load_explicit(&stream->capture, memory_order_relaxed);
}

/* Writes the work down. */
xpu_status graph_record(xpu_graph *graph, const work *w);

/* How far a stream had come when an event was recorded in it; capture 0: in none. */
typedef struct graph_mark {
    uint64_t capture; /* its number, never used again */
    int place;
} graph_mark;
xpu_status graph_mark_stream(xpu_graph *graph, const xpu_stream *stream, graph_mark *mark);
bool graph_mark_is_open(const graph_mark *mark);
/* The stream waits for the mark, and is part of its capture from then on; nothing when that is over. */
xpu_status graph_join(xpu_stream *stream, const graph_mark *mark);

/* Counters (xpu_workspace_counters) of the graph's own: what a stream is given meanwhile has its own. */
xpu_status graph_counters(xpu_graph *graph, uint32_t **counters);
/* Makes some. */
xpu_status counters_make(int device, uint32_t **counters);

/* A recorded kernel may report a fault. */
void graph_note_watched(xpu_graph *graph);

/* Fails if a stream of the device is captured. */
xpu_status graph_refuse_device(int device, const char *what);

/* Generators (random.c): one is there until its owner and all graphs have let go, and keeps its numbers while
 * it is part of a capture. */
void generator_hold(xpu_generator *generator);
void generator_capture(xpu_generator *generator, bool begins);

#endif
