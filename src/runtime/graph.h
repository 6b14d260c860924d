/* Captures as the rest of the runtime sees them. A stream that is part of a capture points at it in
 * `capture`. Each function takes the graph's own lock, so any thread may call it. */
#ifndef RUNTIME_GRAPH_H
#define RUNTIME_GRAPH_H

#include "runtime/work.h"
#include "xpu/graph.h"

static inline xpu_graph *stream_capture(const xpu_stream *stream) {
    return atomic_load_explicit(&stream->capture, memory_order_relaxed);
}

/* Records a copy of `w` as the next node. Fails for work that blocks the host. */
xpu_status graph_record(xpu_graph *graph, const work *w);

/* The position of an event in a capture. capture 0: recorded outside any capture. */
typedef struct graph_mark {
    uint64_t capture; /* the capture's number; never reused */
    int place;
} graph_mark;
xpu_status graph_mark_stream(xpu_graph *graph, const xpu_stream *stream, graph_mark *mark);
bool graph_mark_is_open(const graph_mark *mark);
/* Makes the stream wait for the mark and join its capture. Does nothing if that capture has ended. */
xpu_status graph_join(xpu_stream *stream, const graph_mark *mark);

/* The graph's own counters (xpu_workspace_counters), so that a replay does not share counters with work that
 * streams run at the same time. */
xpu_status graph_counters(xpu_graph *graph, uint32_t **counters);
/* Allocates zeroed counters; the caller frees them with cl_memory_free. */
xpu_status counters_make(int device, uint32_t **counters);

/* Notes that a recorded kernel may report a fault, so that replays are checked. */
void graph_note_watched(xpu_graph *graph);

/* Fails if any capture is active on the device; `what` names the operation in the error text. */
xpu_status graph_refuse_device(int device, const char *what);

/* Generators (random.c) are reference-counted: the owner and each graph hold one reference. While a capture
 * uses a generator, its state cannot be changed. */
void generator_hold(xpu_generator *generator);
void generator_capture(xpu_generator *generator, bool begins);

#endif
