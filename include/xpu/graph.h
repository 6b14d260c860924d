/* xpu/graph.h: captures work submitted to a stream and replays it at low cost.
 *
 * Between begin and end, work on the stream is recorded and not executed: kernels with a copy of their
 * parameters, copies, fills, and host function calls. A replay submits all of it in the recorded order.
 * Addresses don't change; new input is written to the recorded addresses.
 *
 *     xpu_graph_create(0, &graph);
 *     xpu_graph_begin(graph, stream, NULL);
 *     ...                                    launches on `stream`, memory for it, waits between streams
 *     xpu_graph_end(graph);
 *     xpu_graph_replay(graph, stream);       as often as wanted
 *
 * Memory: allocations on a capturing stream come from the graph's own pool (xpu_pool_begin) and stay in it
 *     until the graph is reset. Blocks freed during the capture are reused by the same capture only. Other
 *     memory must be kept alive by its owner.
 *
 * Other streams of the device join a capture by waiting for an event recorded in it. The first stream must
 * wait for them in the same manner before the capture ends. A replay runs everything in order on one stream.
 *
 * What can't be recorded fails with XPU_ERROR_INVALID_ARGUMENT, and the capture continues without it:
 * - waiting on the host for a capturing stream, its device, or an event recorded in the capture.
 * - copies that block the host.
 * - waiting for an event that is not part of the capture.
 * xpu_event_query returns XPU_NOT_READY for an event of a capture in progress, and XPU_SUCCESS afterwards.
 *
 * Observers: trace callbacks and the profiler see a graph's work when it is replayed.
 * Threads: any thread may replay a graph; concurrent replays of one graph are serialized. A replay on
 *     another stream than the previous one first waits for the device, as replays share memory. */
#ifndef XPU_GRAPH_H
#define XPU_GRAPH_H

#include "random.h"
#include "trace.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct xpu_graph xpu_graph;

/* An empty graph for a device, owned by the caller. Destroying a capturing graph ends the capture. */
XPU_API xpu_status xpu_graph_create(int device, xpu_graph **graph);
XPU_API xpu_status xpu_graph_destroy(xpu_graph *graph);

/* Starts capturing `stream` into an empty graph.
 *
 * stream: not the device's default stream, which is shared.
 * pool: the memory pool, or NULL for a new one. Graphs may share a pool if they are replayed in the order of
 *     their captures, one at a time. */
XPU_API xpu_status xpu_graph_begin(xpu_graph *graph, xpu_stream *stream, const uint64_t pool[2]);

/* Ends the capture, even if it fails.
 *
 * Errors: XPU_ERROR_INVALID_ARGUMENT if a joined stream has work that the first stream hasn't waited for;
 *     the graph then holds no capture. */
XPU_API xpu_status xpu_graph_end(xpu_graph *graph);

/* Prepares the graph for replay. Otherwise the first replay does. */
XPU_API xpu_status xpu_graph_instantiate(xpu_graph *graph);

/* Submits the recorded work to a stream of the graph's device.
 *
 * Errors: XPU_ERROR_INVALID_ARGUMENT for a graph without a finished capture, and on a capturing stream. */
XPU_API xpu_status xpu_graph_replay(xpu_graph *graph, xpu_stream *stream);

/* Empties the graph and releases its pool. Replays in progress must have finished. */
XPU_API xpu_status xpu_graph_reset(xpu_graph *graph);

/* The pool of the last capture. XPU_ERROR_INVALID_ARGUMENT before the first capture and after a reset. */
XPU_API xpu_status xpu_graph_pool(const xpu_graph *graph, uint64_t pool[2]);

/* A pool id that has never been used: 0,n if `of_user`, else n,0. */
XPU_API xpu_status xpu_pool_new_id(bool of_user, uint64_t pool[2]);

/* Visits the recorded work, in order. */
typedef void (*xpu_graph_visitor)(const xpu_work *work, void *user);
XPU_API xpu_status xpu_graph_visit(const xpu_graph *graph, xpu_graph_visitor visit, void *user);

/* True if the stream is part of a capture. */
XPU_API bool xpu_stream_is_capturing(const xpu_stream *stream);

/* True if a graph of the device may read or write the memory at `pointer`, which then must not be moved.
 *
 * True for memory that existed before the end of a capture, as long as that graph has the capture, and for
 * all memory during a capture. Memory not from xpu_malloc counts as older than any capture. */
XPU_API bool xpu_graph_may_use(int device, const void *pointer);

/* Fails, with a message that names `what`, if the stream is part of a capture: for work that would bypass
 * it. */
XPU_API xpu_status xpu_stream_refuse_capture(const xpu_stream *stream, const char *what);

/* xpu_host_call that takes ownership of `context`, even if it fails. `release` receives the context after
 * the call; if the call was recorded, when the graph is reset. */
XPU_API xpu_status xpu_graph_host_call(xpu_stream *stream, const char *name,
                                       xpu_status (*function)(xpu_stream *stream, const void *context),
                                       void *context, void (*release)(void *context));

/* For host memory that a CPU device's kernel reads through an address in its parameters. Gives `data`
 * itself, which must remain valid until the launch returns. During a capture, gives a copy that lives as
 * long as the graph. */
XPU_API xpu_status xpu_graph_keep(xpu_stream *stream, const void *data, size_t size, const void **kept);

/* xpu_generator_reserve for work on `stream`.
 *
 * Each replay reserves again, as much as the whole capture did. The recorded kernels then draw what newly
 * launched ones would.
 * Requirement: the kernel's parameters contain the seed as given here, at a multiple of 8 bytes, directly
 *     followed by offset / 4, in 64 bits each.
 * While the stream is captured, the seed is a placeholder by which replay finds and patches the parameters.
 */
XPU_API xpu_status xpu_graph_reserve(xpu_stream *stream, xpu_generator *generator, uint64_t count,
                                     uint64_t *seed, uint64_t *offset);

#ifdef __cplusplus
}
#endif
#endif
