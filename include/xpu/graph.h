/* xpu/graph.h: what a stream is given to do, recorded once and done again at little cost.
 *
 * Between begin and end whatever a stream is given is written down and not done: kernels with a copy of their
 * parameters, copies, fills, calls of functions on the host. A replay gives all of it to a stream in the
 * order in which it was recorded; addresses stay what they were, so whoever wants other numbers writes them
 * there.
 *
 *     xpu_graph_create(0, &graph);
 *     xpu_graph_begin(graph, stream, NULL);
 *     ...                                    launches on `stream`, memory for it, waits between streams
 *     xpu_graph_end(graph);
 *     xpu_graph_replay(graph, stream);       as often as wanted
 *
 * Memory that is asked for on a stream that captures comes from a pool of the graph's own (xpu_pool_begin)
 * and stays in it until the graph is reset: what is freed meanwhile serves the rest of the capture and no one
 * else. Other memory is its owner's to keep.
 *
 * Other streams of the device join a capture by waiting for an event that was recorded in it, and must be
 * joined again the same way before it ends. A replay does everything in one stream, one after the other.
 *
 * What can't be recorded fails with XPU_ERROR_INVALID_ARGUMENT, and the capture goes on without it: waiting
 * for a stream that captures, for its device or for an event recorded in it; copies that the host waits for;
 * a wait for an event that isn't of the capture. xpu_event_query says XPU_NOT_READY of an event of a capture
 * that goes on; afterwards it counts as happened.
 *
 * Trace callbacks and the profiler hear of a graph's work when it is replayed. A graph may be replayed by any
 * thread, by one at a time; others wait. On another stream than the last time it first waits for the device:
 * replays share their memory.
 */
#ifndef XPU_GRAPH_H
#define XPU_GRAPH_H

#include "random.h"
#include "trace.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_graph xpu_graph;

/* An empty graph for a device, destroyed by its owner; destroying one that captures ends that. */
XPU_API xpu_status xpu_graph_create(int device, xpu_graph **graph);
XPU_API xpu_status xpu_graph_destroy(xpu_graph *graph);

/* From now on `stream` is captured. It is not the device's default stream, which belongs to everybody, and
 * the graph is empty. `pool` (may be NULL: a new one) names the pool of memory, which graphs can share that
 * are replayed in the order of their captures, one at a time. */
XPU_API xpu_status xpu_graph_begin(xpu_graph *graph, xpu_stream *stream, const uint64_t pool[2]);

/* The capture is over, whatever comes back. XPU_ERROR_INVALID_ARGUMENT where a stream that joined has work
 * that the first one hasn't waited for; the graph has no capture then. */
XPU_API xpu_status xpu_graph_end(xpu_graph *graph);

/* Gets everything ready for replays; the first replay does it, if nobody did. */
XPU_API xpu_status xpu_graph_instantiate(xpu_graph *graph);

/* Gives the stream, of the graph's device, all that was recorded. XPU_ERROR_INVALID_ARGUMENT for a graph
 * that has no capture or still captures, and on a stream that captures. */
XPU_API xpu_status xpu_graph_replay(xpu_graph *graph, xpu_stream *stream);

/* Empties the graph and leaves its pool; replays that are under way must have finished. */
XPU_API xpu_status xpu_graph_reset(xpu_graph *graph);

/* The pool of the last capture. XPU_ERROR_INVALID_ARGUMENT before the first one and after a reset. */
XPU_API xpu_status xpu_graph_pool(const xpu_graph *graph, uint64_t pool[2]);

/* A number for a pool that has never been used; `of_user` ones are 0,n, others n,0. */
XPU_API xpu_status xpu_pool_new_id(bool of_user, uint64_t pool[2]);

/* What was recorded, in order. */
typedef void (*xpu_graph_visitor)(const xpu_work *work, void *user);
XPU_API xpu_status xpu_graph_visit(const xpu_graph *graph, xpu_graph_visitor visit, void *user);

/* Is the stream part of a capture? */
XPU_API bool xpu_stream_is_capturing(const xpu_stream *stream);

/* May a graph of the device read or write the memory at `pointer`? True for all that was there before the
 * capture of such a graph was over, as long as the graph has it, and for any memory while one captures: what
 * lies there must not move then. Of memory that xpu_malloc didn't give it is unknown since when it is there.
 */
XPU_API bool xpu_graph_may_use(int device, const void *pointer);

/* Fails with a sentence that names `what`, if the stream is part of a capture: for what would go round it. */
XPU_API xpu_status xpu_stream_refuse_capture(const xpu_stream *stream, const char *what);

/* xpu_host_call with a context that is handed over, whatever comes back: `release` gets it after the call, of
 * a recorded one when the graph is reset. */
XPU_API xpu_status xpu_graph_host_call(xpu_stream *stream, const char *name,
                                       xpu_status (*function)(xpu_stream *stream, const void *context),
                                       void *context, void (*release)(void *context));

/* For host memory that a host device's kernels read by an address in their parameters: `data` itself, which
 * must last until the launch returns, or a copy that lasts as long as the graph that captures the stream. */
XPU_API xpu_status xpu_graph_keep(xpu_stream *stream, const void *data, size_t size, const void **kept);

/* xpu_generator_reserve for work on `stream`. Each replay reserves anew, as much as the whole capture did, so
 * that the recorded kernels draw what they would draw if they were launched then. For that a kernel's
 * parameters have the seed, as this gives it, at a multiple of 8 bytes, followed by a quarter of the offset,
 * in 64 bits each; while the stream is captured the seed is a mark by which they are found. */
XPU_API xpu_status xpu_graph_reserve(xpu_stream *stream, xpu_generator *generator, uint64_t count,
                                     uint64_t *seed, uint64_t *offset);

#ifdef __cplusplus
}
#endif
#endif
